//! Whether what the scope reads was made by somebody before our filter.

use super::code::Code;
use super::guard::Guard;
use super::place::{Findings, Place};
use super::world::{Chain, Filter, typed};
use fencepost_filter_core::policy::Policy;
use fencepost_filter_core::scope::{ScopePolicy, ScopeSource};

/// Filters that may leave anything anywhere.
const ANYTHING: [&str; 6] = ["ext_proc", "lua", "wasm", "golang", "dynamic_modules", "composite"];

/// See the module.
pub(super) fn check(chain: &Chain<'_>, index: usize, guard: &Guard<'_>, findings: &mut Findings) {
    let before = chain.filters.get(..index).unwrap_or_default();
    let before: Vec<_> = before.iter().filter(|filter| is_on(chain, filter)).collect();
    for policy in guard.configuration.policies() {
        if let ScopePolicy::Sources(sources) = &policy.scope {
            for (i, source) in sources.iter().enumerate() {
                let place = guard.configuration.line_of_setting(&policy.name, &format!("scope[{i}]"));
                check_source(chain, &before, source, policy, place, findings);
            }
        }
        for (i, name) in policy.require_metadata.iter().enumerate() {
            if !leaves_metadata(&before, name) {
                let place =
                    guard.configuration.line_of_setting(&policy.name, &format!("require_metadata[{i}]"));
                let found = format!("no filter before that leaves metadata as {name:?}");
                findings.error(place, Code::RequiredMetadataMissing, found, "that filter before this one");
            }
        }
    }
}

/// On, or turned on by some route.
fn is_on(chain: &Chain<'_>, filter: &Filter<'_>) -> bool {
    let configured = |place: &Place<'_>| place.get("typed_per_filter_config").get(&filter.name).exists();
    !filter.disabled
        || chain
            .virtual_hosts()
            .any(|host| configured(&host) || host.get("routes").items().any(|r| configured(&r)))
}

fn leaves_metadata(before: &[&Filter<'_>], name: &str) -> bool {
    before.iter().any(|filter| {
        let canonical = format!("envoy.filters.http.{}", filter.word());
        canonical == name
            || filter.name == name
            || ANYTHING.contains(&filter.word())
            || matches!(
                filter.word(),
                "set_metadata" | "header_to_metadata" | "json_to_metadata" | "ext_authz"
            )
    })
}

fn check_source(
    chain: &Chain<'_>,
    before: &[&Filter<'_>],
    source: &ScopeSource,
    policy: &Policy,
    place: Place<'_>,
    findings: &mut Findings,
) {
    let missing = |findings: &mut Findings, found: String, expected: &str| {
        findings.error(place, Code::AuthenticationMissing, found, expected);
    };
    match source {
        ScopeSource::Jwt { filter, payload, .. } => {
            let jwt: Vec<_> = before.iter().filter(|filter| filter.word() == "jwt_authn").collect();
            if jwt.is_empty() && !leaves_other_payload(before, filter) {
                let found =
                    format!("policy {:?} scoped by a JWT, and no jwt_authn before the filter", policy.name);
                missing(findings, found, "jwt_authn before the filter");
            } else if !jwt.is_empty() && filter == "envoy.filters.http.jwt_authn" {
                let leaves = jwt.iter().any(|jwt| {
                    let mut providers = jwt.config.get("providers").members();
                    providers.any(|(_, provider)| provider.get("payload_in_metadata").is(payload))
                });
                if !leaves {
                    let found = format!("no provider of jwt_authn with payload_in_metadata: {payload}");
                    let expected = "the name that the scope reads in payload_in_metadata of the providers";
                    findings.error(place, Code::JwtPayloadMissing, found, expected);
                }
            }
        }
        ScopeSource::PeerSan => check_peer(chain, place, findings),
        ScopeSource::Metadata { filter, .. } if !leaves_metadata(before, filter) => {
            let found = format!("no filter before that leaves metadata as {filter:?}");
            missing(findings, found, "that filter before this one");
        }
        ScopeSource::FilterState { key } => {
            let sets = |filter: &&&Filter<'_>| {
                filter.word() == "set_filter_state" || ANYTHING.contains(&filter.word())
            };
            let network = chain.filter_chain.is_some_and(|chain| {
                chain
                    .get("filters")
                    .items()
                    .any(|filter| typed(&filter.get("typed_config")).0.contains("set_filter_state"))
            });
            if !before.iter().any(|filter| sets(&filter)) && !network {
                missing(
                    findings,
                    format!("no filter before that sets filter state {key:?}"),
                    "it before the filter",
                );
            }
        }
        ScopeSource::Header { name } if !is_overwritten(chain, before, name) => {
            let found = format!("header {name:?} declared trusted, and nothing before that overwrites it");
            let expected = "a filter before this one that sets or removes it, whatever the client sent";
            findings.warning(place, Code::TrustedHeaderOpen, found, expected);
        }
        _ => {}
    }
}

/// A JWT may be verified by another filter, if the scope names it.
fn leaves_other_payload(before: &[&Filter<'_>], name: &str) -> bool {
    name != "envoy.filters.http.jwt_authn" && leaves_metadata(before, name)
}

fn check_peer(chain: &Chain<'_>, place: Place<'_>, findings: &mut Findings) {
    let Some(filter_chain) = chain.filter_chain else { return };
    let socket = filter_chain.get("transport_socket");
    let (kind, tls) = typed(&socket.get("typed_config"));
    let found = if !socket.exists() {
        "a listener without TLS"
    } else if !kind.ends_with("DownstreamTlsContext") && !kind.ends_with("QuicDownstreamTransport") {
        // Some other transport; meshes have their own.
        return;
    } else {
        let tls =
            if kind.ends_with("QuicDownstreamTransport") { tls.get("downstream_tls_context") } else { tls };
        let common = tls.get("common_tls_context");
        let checks =
            ["validation_context", "validation_context_sds_secret_config", "combined_validation_context"];
        if !checks.iter().any(|name| common.get(name).exists()) {
            "a listener that checks no client certificates"
        } else if !tls.get("require_client_certificate").is_true() {
            let found = "client certificates that are optional";
            let expected = "require_client_certificate: true, or those without one get 403 on guarded routes";
            return findings.note(socket, Code::PeerCertificateUnverified, found, expected);
        } else {
            return;
        }
    };
    let expected = "DownstreamTlsContext with require_client_certificate: true and a validation context";
    let place = if socket.exists() { socket } else { place };
    findings.error(place, Code::PeerCertificateUnverified, found, expected);
}

fn is_overwritten(chain: &Chain<'_>, before: &[&Filter<'_>], name: &str) -> bool {
    let removed = chain.routes.map(|routes| routes.get("internal_only_headers"));
    if removed.is_some_and(|removed| removed.items().any(|header| is_name(&header, name))) {
        return true;
    }
    before.iter().any(|filter| match filter.word() {
        "basic_auth" => is_name(&filter.config.get("forward_username_header"), name),
        "api_key_auth" => is_name(&filter.config.at("forwarding.header"), name),
        "jwt_authn" => filter.config.get("providers").members().any(|(_, provider)| {
            let mut claims = provider.get("claim_to_headers").items();
            claims.any(|claim| is_name(&claim.get("header_name"), name))
        }),
        "header_mutation" => filter.config.at("mutations.request_mutations").items().any(|mutation| {
            is_name(&mutation.get("remove"), name) || is_name(&mutation.at("append.header.key"), name)
        }),
        "ext_authz" | "oauth2" => true,
        word => ANYTHING.contains(&word),
    })
}

fn is_name(place: &Place<'_>, name: &str) -> bool {
    place.text().is_some_and(|text| text.eq_ignore_ascii_case(name))
}
