//! How the upstream is called, and what it is given for its own providers.

use super::error::found;
use super::layer::{DownstreamLayer, ExecutionLayer, FormLayer};
use super::resolve::{At, MAX_RUN_MS_MAX};
use super::{ConfigError, Execution};
use crate::downstream::{DownstreamForm, DownstreamKey, HEX_DIGITS_MAX, HEX_DIGITS_MIN, provider};

pub(super) fn execution(
    at: &At<'_>,
    layer: Option<ExecutionLayer>,
    max_run_ms: u32,
) -> Result<Execution, ConfigError> {
    let Some(ExecutionLayer::Detached(detached)) = layer else { return Ok(Execution::Inline) };
    let path = format!("{}.detached", at.0);
    let at = At(&path);
    let timeout_ms = at.millis("timeout", Some(detached.timeout), 0, 1..=MAX_RUN_MS_MAX)?;
    // The call's own timeout ends it without a report, so the run's own must come first.
    if timeout_ms <= max_run_ms {
        let expected = format!("more than max_run ({max_run_ms} ms)");
        return Err(at.error("timeout", format!("{timeout_ms} ms"), expected));
    }
    Ok(Execution::Detached {
        cluster: at.name("cluster", &detached.cluster)?,
        loopback: detached.loopback,
        timeout_ms,
    })
}

pub(super) fn downstream_keys(
    at: &At<'_>,
    layers: Vec<DownstreamLayer>,
) -> Result<Vec<DownstreamKey>, ConfigError> {
    let mut keys: Vec<DownstreamKey> = Vec::with_capacity(layers.len());
    for (i, layer) in layers.into_iter().enumerate() {
        let path = format!("{}.downstream_keys[{i}]", at.0);
        let key = downstream(&At(&path), layer)?;
        if keys.iter().any(|other| other.header == key.header) {
            return Err(At(&path).error("header", format!("{:?} again", key.header), "each header once"));
        }
        keys.push(key);
    }
    Ok(keys)
}

fn downstream(at: &At<'_>, layer: DownstreamLayer) -> Result<DownstreamKey, ConfigError> {
    let known = provider(&layer.provider);
    // Another spelling would be another provider, without the limits of the one that is meant.
    let meant = layer.provider.trim().to_ascii_lowercase();
    if known.is_none() && provider(&meant).is_some() {
        let found = found(Some(&layer.provider.into()));
        return Err(at.error("provider", found, format!("{meant:?} in this spelling, or another name")));
    }
    let form = match (layer.form, layer.length) {
        (None, None) => known.as_ref().map_or(DownstreamForm::Hex { digits: HEX_DIGITS_MAX }, |p| p.form),
        (Some(FormLayer::Uuid), None) => DownstreamForm::Uuid,
        (Some(FormLayer::Uuid), Some(_)) => {
            return Err(at.error("length", "a length of a UUID", "no length: a UUID has its own"));
        }
        (Some(FormLayer::Hex), None) => {
            let most = known.as_ref().map_or(HEX_DIGITS_MAX, |p| p.length_max.min(HEX_DIGITS_MAX));
            DownstreamForm::Hex { digits: most }
        }
        (Some(FormLayer::Hex) | None, Some(length)) => {
            let digits = usize::try_from(length.0)
                .ok()
                .filter(|digits| (HEX_DIGITS_MIN..=HEX_DIGITS_MAX).contains(digits));
            let expected = "32 to 64 hex digits: fewer than 128 bits may meet by chance";
            DownstreamForm::Hex {
                digits: digits.ok_or_else(|| at.error("length", length.0.to_string(), expected))?,
            }
        }
    };
    if let Some(known) = known.filter(|known| form.len() > known.length_max) {
        let expected = format!("at most {} characters for {}", known.length_max, layer.provider);
        return Err(at.error("length", form.len().to_string(), expected));
    }
    Ok(DownstreamKey {
        provider: at.name("provider", &layer.provider)?,
        operation: at.name("operation", &layer.operation)?,
        header: at.own_header("header", &layer.header)?,
        form,
    })
}
