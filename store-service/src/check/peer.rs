//! Client certificates: whether a listener asks for them and checks them.

use super::finding::Severity::{self, Error, Note};
use super::place::Place;
use super::world::{Chain, typed};

const EXPECTED: &str = "DownstreamTlsContext with require_client_certificate: true and a validation context";

/// How bad, where if not where they are needed, what was found, and what would be right.
type Unverified<'a> = (Severity, Option<Place<'a>>, &'static str, &'static str);

/// Nothing if they are verified, or if that can't be said.
pub(super) fn judge<'a>(chain: &Chain<'a>) -> Option<Unverified<'a>> {
    let socket = chain.filter_chain?.get("transport_socket");
    if !socket.exists() {
        return Some((Error, None, "a listener without TLS", EXPECTED));
    }
    let (kind, tls) = typed(&socket.get("typed_config"));
    let tls = if kind.ends_with("QuicDownstreamTransport") {
        tls.get("downstream_tls_context")
    } else if kind.ends_with("DownstreamTlsContext") {
        tls
    } else {
        // Some other transport; meshes have their own.
        return None;
    };
    let common = tls.get("common_tls_context");
    let combined = common.get("combined_validation_context");
    let contexts = [common.get("validation_context"), combined.get("default_validation_context")];
    let discovered =
        ["validation_context_sds_secret_config", "validation_context_certificate_provider_instance"];
    let discovered = discovered.iter().any(|name| common.get(name).exists() || combined.get(name).exists());
    let Some(context) = contexts.into_iter().find(Place::exists) else {
        return if discovered {
            optional(&tls, socket)
        } else {
            Some((Error, Some(socket), "a listener that checks no client certificates", EXPECTED))
        };
    };
    let chain_verification = context.get("trust_chain_verification");
    if chain_verification.is("ACCEPT_UNTRUSTED") || chain_verification.is("1") {
        let expected = "VERIFY_TRUST_CHAIN: anybody can make a certificate with any name";
        return Some((
            Error,
            Some(chain_verification),
            "client certificates that nobody vouches for",
            expected,
        ));
    }
    let checks = [
        "trusted_ca",
        "ca_certificate_provider_instance",
        "system_root_certs",
        "verify_certificate_spki",
        "verify_certificate_hash",
        "custom_validator_config",
    ];
    if !discovered && !checks.iter().any(|name| context.get(name).exists()) {
        return Some((Error, Some(context), "a validation context that checks nothing", "trusted_ca in it"));
    }
    optional(&tls, socket)
}

fn optional<'a>(tls: &Place<'a>, socket: Place<'a>) -> Option<Unverified<'a>> {
    let expected = "require_client_certificate: true, or those without one get 403 on guarded routes";
    let required = tls.get("require_client_certificate").is_true();
    (!required).then_some((Note, Some(socket), "client certificates that are optional", expected))
}
