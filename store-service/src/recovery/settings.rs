//! The file of `--recovery` (YAML or JSON): whom recovery asks, and within which promises.
//!
//! A value that can't be right ends the start, with its path, what was found and what would be right;
//! so does a relation between two durations that can't hold, with both values.

use super::answer::ANSWER_MAX;
use super::backoff::Backoff;
use super::breaker::BreakerLimits;
use super::endpoint::Endpoint;
use super::file::{
    ContractIn, EndpointIn, File, KeysIn, MethodIn, OperationsIn, ProviderIn, SubmitIn, TlsIn,
};
use super::plan::{Contract, GiveUp};
use super::provider::{KeysAt, OperationsAt, Provider};
use super::sign::SigningKey;
use super::targets::Targets;
use super::template::{Places, Template};
use crate::grant::duration::Span;
use crate::grant::timing::ExecutionTimings;
use crate::tls::{ClientTls, Dial, Trust};
use fencepost_protocol::StoreKey;
use hyper::Method;
use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Most requests at once to one provider.
const CONCURRENCY_MAX: usize = 64;

/// Most operations, or keys, of one provider in one round.
const BATCH_MAX: u32 = 1_000;

/// What the file says.
pub struct Settings {
    /// How often recovery looks for work.
    pub every: Duration,
    /// Most operations, or keys, of one provider in one round.
    pub batch: u32,
    /// When it stops trying.
    pub give_up: GiveUp,
    /// How long it rests between.
    pub backoff: Backoff,
    /// Whom it asks.
    pub providers: Vec<Provider>,
}

/// Why the file can't be used.
#[derive(Debug, thiserror::Error)]
#[error("--recovery {}: {reason}", .path.display())]
pub struct SettingsError {
    /// The file.
    pub path: PathBuf,
    /// What was found, and what would be right.
    pub reason: String,
}

impl Settings {
    /// Reads the file and the keys that it names.
    pub fn read(path: &Path, timings: &ExecutionTimings) -> Result<Self, SettingsError> {
        let failed = |reason: String| SettingsError { path: path.to_owned(), reason };
        let text = std::fs::read_to_string(path)
            .map_err(|error| failed(format!("{error}; expected a readable file")))?;
        let base = path.parent().unwrap_or(Path::new("."));
        Self::parse(&text, base, timings).map_err(failed)
    }

    /// Reads the text; `base` is where relative paths start.
    pub fn parse(text: &str, base: &Path, timings: &ExecutionTimings) -> Result<Self, String> {
        let value: serde_json::Value = serde_saphyr::from_str(text)
            .map_err(|error| error.to_string().lines().next().unwrap_or("not YAML").to_owned())?;
        let file: File = serde_path_to_error::deserialize(value)
            .map_err(|error| format!("{}: {}", error.path(), error.inner()))?;
        check_times(&file, timings)?;
        if file.providers.is_empty() {
            return Err("providers: found none; expected at least one".into());
        }
        let give_up = GiveUp { attempts: file.give_up.attempts, age_ms: file.give_up.age.as_ms() };
        let backoff = Backoff { first: file.backoff.first, max: file.backoff.max };
        let mut served = Served::default();
        let mut providers = Vec::new();
        for (name, entry) in file.providers {
            let path = format!("providers.{name}");
            providers.push(
                entry.checked(&name, base, timings, &mut served).map_err(|why| format!("{path}.{why}"))?,
            );
        }
        Ok(Self { every: file.every.duration(), batch: file.batch, give_up, backoff, providers })
    }

    /// Is every issuer one of those whose grants this service admits? Says which is not.
    pub fn check_issuers(&self, known: impl Fn(&str) -> bool) -> Result<(), String> {
        for provider in &self.providers {
            let issuers = provider.operations.iter().flat_map(|at| &at.issuers);
            if let Some(stranger) = issuers.into_iter().find(|issuer| !known(issuer)) {
                return Err(format!(
                    "providers.{}.operations.issuers: found {stranger:?}, which is not in --issuers; expected \
                     issuers whose grants this service admits",
                    provider.name
                ));
            }
        }
        Ok(())
    }

    /// The provider of an issuer's operations.
    pub fn of_issuer(&self, issuer: &str) -> Option<&Provider> {
        let serves = |provider: &&Provider| {
            provider.operations.as_ref().is_some_and(|at| at.issuers.iter().any(|own| own == issuer))
        };
        self.providers.iter().find(serves)
    }
}

/// What some provider serves already.
#[derive(Default)]
struct Served {
    issuers: BTreeSet<String>,
    prefixes: BTreeSet<String>,
}

fn check_times(file: &File, timings: &ExecutionTimings) -> Result<(), String> {
    if !(1..=BATCH_MAX).contains(&file.batch) {
        return Err(format!("batch: found {}; expected 1 to {BATCH_MAX}", file.batch));
    }
    if file.give_up.attempts == 0 {
        return Err("give_up.attempts: found 0; expected 1 or more".into());
    }
    for (name, span) in [("every", file.every), ("backoff.first", file.backoff.first)] {
        if span == Span::default() {
            return Err(format!("{name}: found 0; expected more than zero"));
        }
    }
    at_most(
        ("every", file.every),
        ("timings.recovery_delay", timings.recovery_delay),
        "what stalled is looked at within the delay that the other timings count on",
    )?;
    let first_look = timings.execution_lease.plus(timings.recovery_delay).plus(timings.recovery_step);
    at_most(
        ("timings.execution_lease + recovery_delay + recovery_step", first_look),
        ("give_up.age", file.give_up.age),
        "else an operation goes to a person before recovery could look it up",
    )?;
    at_most(("backoff.first", file.backoff.first), ("backoff.max", file.backoff.max), "rests grow")?;
    at_most(
        ("backoff.max", file.backoff.max),
        ("give_up.age", file.give_up.age),
        "else an operation goes to a person without having been looked up again",
    )
}

fn at_most(small: (&str, Span), large: (&str, Span), why: &str) -> Result<(), String> {
    if small.1 <= large.1 {
        return Ok(());
    }
    Err(format!(
        "{}: found {}, and {} = {}; expected at most that: {why}",
        small.0, small.1, large.0, large.1
    ))
}

impl ProviderIn {
    fn checked(
        self,
        name: &str,
        base: &Path,
        timings: &ExecutionTimings,
        served: &mut Served,
    ) -> Result<Provider, String> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if name.is_empty() || name.len() > 64 || !name.bytes().all(plain) {
            return Err("name: expected 1 to 64 letters, digits, - . or _".into());
        }
        if !(1..=CONCURRENCY_MAX).contains(&self.concurrency) {
            return Err(format!("concurrency: found {}; expected 1 to {CONCURRENCY_MAX}", self.concurrency));
        }
        if self.breaker.failures == 0 || self.breaker.open_for == Span::default() {
            return Err("breaker: expected failures and open_for of more than zero".into());
        }
        if self.operations.is_none() && self.keys.is_none() {
            return Err("operations: missing, and so is keys; expected one of them".into());
        }
        let file = base.join(&self.sign.key_file);
        let text = std::fs::read_to_string(&file).map_err(|error| {
            format!("sign.key_file: {}: {error}; expected a readable file", file.display())
        })?;
        let key = SigningKey::parse(&self.sign.key_id, &text).map_err(|why| format!("sign: {why}"))?;
        let tls = ProviderTls { entry: self.tls, base, opened: OnceCell::new() };
        let maker = Maker { key, timings, anywhere: self.allow_plaintext_network, tls };
        let operations = self
            .operations
            .map(|at| at.checked(&maker, served).map_err(|why| format!("operations.{why}")))
            .transpose()?;
        let keys = self
            .keys
            .map(|at| at.checked(&maker, served).map_err(|why| format!("keys.{why}")))
            .transpose()?;
        if maker.tls.entry.is_some() && maker.tls.opened.get().is_none() {
            return Err("tls: found it, and no url with https; expected one".into());
        }
        let breaker =
            BreakerLimits { failures: self.breaker.failures, open_for: self.breaker.open_for.duration() };
        Ok(Provider::new(name.to_owned(), operations, keys, self.concurrency, breaker))
    }
}

/// What a provider's `https` URLs are asked with; read when there is one.
struct ProviderTls<'a> {
    entry: Option<TlsIn>,
    base: &'a Path,
    opened: OnceCell<ClientTls>,
}

impl ProviderTls<'_> {
    fn get(&self) -> Result<ClientTls, String> {
        if let Some(tls) = self.opened.get() {
            return Ok(tls.clone());
        }
        let entry = self.entry.as_ref();
        let file = |file: Option<&PathBuf>| file.map(|file| self.base.join(file));
        let ca = file(entry.and_then(|entry| entry.ca_file.as_ref()));
        let cert = file(entry.and_then(|entry| entry.cert_file.as_ref()));
        let key = file(entry.and_then(|entry| entry.key_file.as_ref()));
        let own = match (cert.as_deref(), key.as_deref()) {
            (None, None) => None,
            (Some(cert), Some(key)) => Some((("tls.cert_file", cert), ("tls.key_file", key))),
            _ => return Err("tls: found one of cert_file and key_file; expected both or none".into()),
        };
        let tls = ClientTls::open(Trust::of("tls.ca_file", ca.as_deref()), own);
        let tls = tls.map_err(|error| error.to_string())?;
        Ok(self.opened.get_or_init(|| tls).clone())
    }
}

/// What every endpoint of a provider has in common.
struct Maker<'a> {
    key: SigningKey,
    timings: &'a ExecutionTimings,
    anywhere: bool,
    tls: ProviderTls<'a>,
}

impl Maker<'_> {
    fn endpoint(&self, entry: EndpointIn, places: Places, usual: (Method, Span)) -> Result<Endpoint, String> {
        let url = Template::parse(&entry.url, places).map_err(|why| format!("url: {why}"))?;
        let tls = if url.is_encrypted() { Some(self.tls.get()?) } else { None };
        let dial = Dial::new(url.authority(), tls).map_err(|why| format!("url: {why}"))?;
        if !dial.is_encrypted() && !dial.is_loopback() && !self.anywhere {
            let host = url.authority();
            return Err(format!(
                "url: found http to the host {host}; expected https, or 127.0.0.1, [::1] or localhost, where a \
                 proxy speaks TLS onwards, or allow_plaintext_network: true: whoever sits on the way could \
                 invent answers"
            ));
        }
        let timeout = entry.timeout.unwrap_or(usual.1);
        if timeout == Span::default() {
            return Err("timeout: found 0; expected more than zero".into());
        }
        let calls = self.timings.store_call_timeout.plus(self.timings.store_call_timeout);
        at_most(
            ("timeout + 2 x timings.store_call_timeout", timeout.plus(calls)),
            ("timings.recovery_step", self.timings.recovery_step),
            "a step is this request and the store's calls around it, and the lease is renewed once for it",
        )?;
        let method = match entry.method {
            Some(MethodIn::Get) => Method::GET,
            Some(MethodIn::Post) => Method::POST,
            None => usual.0,
        };
        Ok(Endpoint {
            method,
            url,
            dial,
            timeout: timeout.duration(),
            targets: Targets::OperationId,
            key: self.key.clone(),
            answer_max: ANSWER_MAX,
        })
    }
}

impl OperationsIn {
    fn checked(self, maker: &Maker<'_>, served: &mut Served) -> Result<OperationsAt, String> {
        if self.issuers.is_empty() {
            return Err("issuers: found none; expected those whose operations are looked up here".into());
        }
        for issuer in &self.issuers {
            if issuer.is_empty() {
                return Err("issuers: found an empty one; expected names as --issuers has them".into());
            }
            if !served.issuers.insert(issuer.clone()) {
                return Err(format!("issuers: found {issuer:?} twice; expected one provider for each"));
            }
        }
        let ContractIn { lookup, atomic_concurrent_keys, same_parameters, key_retention } = self.contract;
        if lookup != self.lookup.is_some() {
            return Err(format!(
                "contract.lookup: found {lookup}, and operations.lookup is {}; expected both or neither",
                if self.lookup.is_some() { "set" } else { "missing" }
            ));
        }
        let timings = maker.timings;
        if self.submit.is_some() {
            if !(lookup && atomic_concurrent_keys && same_parameters) {
                return Err("submit: found with a contract that forbids it; expected contract.lookup, \
                            contract.atomic_concurrent_keys and contract.same_parameters to be true, or no \
                            submit"
                    .into());
            }
            let kept = key_retention
                .ok_or("contract.key_retention: missing; expected what the provider documents")?;
            at_most(
                ("timings.submission_window", timings.submission_window),
                ("contract.key_retention - timings.provider_margin", kept.less(timings.provider_margin)),
                "a provider may take a key that it has forgotten for a new request",
            )?;
        }
        let usual = (Method::GET, Span::seconds(5));
        let make = |entry, usual, name: &str| {
            let made = maker.endpoint(entry, Places::Operation, usual);
            made.map_err(|why| format!("{name}.{why}"))
        };
        let lookup_at = self.lookup.map(|entry| make(entry, usual, "lookup")).transpose()?;
        let names_it = |at: &Endpoint| at.method == Method::POST || at.url.names("operation_id");
        if lookup_at.as_ref().is_some_and(|at| !names_it(at)) {
            return Err("lookup.url: names no {operation_id}; expected it, or method: POST".into());
        }
        let usual = (Method::POST, Span::seconds(15));
        let submit = self
            .submit
            .map(|SubmitIn { method, url, timeout, key_prefix, downstream_keys }| {
                let endpoint = make(EndpointIn { method, url, timeout }, usual, "submit")?;
                let targets =
                    Targets::read(key_prefix, downstream_keys).map_err(|why| format!("submit.{why}"))?;
                Ok::<_, String>(Endpoint { targets, ..endpoint })
            })
            .transpose()?;
        if submit.as_ref().is_some_and(|at| at.method != Method::POST) {
            return Err("submit.method: found GET; expected POST".into());
        }
        let contract = Contract {
            lookup,
            submit: submit.is_some(),
            atomic_concurrent_keys,
            same_parameters,
            key_kept_ms: key_retention.unwrap_or_default().less(timings.provider_margin).as_ms(),
        };
        Ok(OperationsAt { issuers: self.issuers, lookup: lookup_at, submit, contract })
    }
}

impl KeysIn {
    fn checked(self, maker: &Maker<'_>, served: &mut Served) -> Result<KeysAt, String> {
        if self.prefixes.is_empty() {
            return Err("prefixes: found none; expected those of the keys that are looked up here".into());
        }
        for prefix in &self.prefixes {
            StoreKey::check_prefix(prefix).map_err(|error| format!("prefixes: {error}"))?;
            if !served.prefixes.insert(prefix.clone()) {
                return Err(format!("prefixes: found {prefix:?} twice; expected one provider for each"));
            }
        }
        let usual = (Method::GET, Span::seconds(5));
        let lookup =
            maker.endpoint(self.lookup, Places::Key, usual).map_err(|why| format!("lookup.{why}"))?;
        let names_it = lookup.url.names("key") && lookup.url.names("fence");
        if lookup.method == Method::GET && !names_it {
            return Err("lookup.url: expected {key} and {fence} in it, or method: POST".into());
        }
        Ok(KeysAt { prefixes: self.prefixes, lookup })
    }
}

#[cfg(test)]
#[path = "settings_tests.rs"]
mod tests;
