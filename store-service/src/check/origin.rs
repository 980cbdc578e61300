//! Where a value comes from that a scope reads: whether a client can choose it.
//!
//! Headers are the client's unless something before our filter overwrites them. Metadata and filter
//! state that a filter before ours makes from such a header, or from the body, are the client's too.

use super::code::Code;
use super::place::{Findings, Place};
use super::switch::{entry, unwrapped};
use super::tree::Kind;
use super::world::{Chain, Filter, typed};
use fencepost_filter_core::scope::ScopeSource;

/// Filters that may leave anything anywhere.
pub(super) const ANYTHING: [&str; 6] = ["ext_proc", "lua", "wasm", "golang", "dynamic_modules", "composite"];

/// Where a scope source reads.
enum Target<'p> {
    Metadata { namespace: &'p str, path: Vec<&'p str> },
    State(&'p str),
}

/// What a rule makes of a request.
struct Made<'a> {
    /// The rule.
    place: Place<'a>,
    /// The header, if it is one.
    header: Option<String>,
    /// What of the request, in words.
    what: String,
}

/// A source of a policy's scope, and where it stands.
pub(super) struct Reader<'p, 'a> {
    pub source: &'p ScopeSource,
    pub place: Place<'a>,
    /// In words: `scope[0] of policy "payments"`.
    pub name: String,
}

/// Reports filters before ours that make what the scope reads out of what clients send. `levels` are
/// those of the route, if it is known.
pub(super) fn check(
    chain: &Chain<'_>,
    before: &[&Filter<'_>],
    levels: &[Place<'_>],
    reader: &Reader<'_, '_>,
    findings: &mut Findings,
) {
    let target = match reader.source {
        ScopeSource::Jwt { filter, payload, claim } => {
            Target::Metadata { namespace: filter, path: vec![payload, claim] }
        }
        ScopeSource::Metadata { filter, path } => {
            Target::Metadata { namespace: filter, path: path.iter().map(String::as_str).collect() }
        }
        ScopeSource::FilterState { key } => Target::State(key),
        ScopeSource::PeerSan
        | ScopeSource::Header { .. }
        | ScopeSource::Host
        | ScopeSource::Constant { .. } => return,
    };
    for (index, filter) in before.iter().enumerate() {
        let earlier = before.get(..index).unwrap_or_default();
        for made in made(filter, levels, &target) {
            if made.header.is_some_and(|header| is_overwritten(chain, earlier, &header)) {
                continue;
            }
            let found = format!(
                "{} made {} by {:?}, and read as {} ({}:{})",
                made.what,
                match &target {
                    Target::Metadata { namespace, .. } => format!("metadata {namespace:?}"),
                    Target::State(key) => format!("filter state {key:?}"),
                },
                filter.name,
                reader.name,
                reader.place.file,
                reader.place.line(),
            );
            let expected = "an identity that the proxy verified, or a filter before that overwrites what the \
                            client sent: otherwise each client chooses whose keys it uses";
            findings.warning(made.place, Code::ScopeFromClient, found, expected);
        }
    }
}

/// What of a request a filter makes the target of.
fn made<'a>(filter: &Filter<'a>, levels: &[Place<'a>], target: &Target<'_>) -> Vec<Made<'a>> {
    let own = levels.iter().find_map(|level| entry(filter, level)).map(|own| unwrapped(&own).1);
    let config = own.filter(|own| own.node.members().len() > 1).unwrap_or(filter.config);
    let namespace_is = |rule: &Place<'_>, wanted: &str| match rule.get("metadata_namespace").text() {
        Some(named) if !named.is_empty() => named == wanted,
        _ => format!("envoy.filters.http.{}", filter.word()) == wanted,
    };
    match (filter.word(), target) {
        ("header_to_metadata", Target::Metadata { namespace, path }) => {
            let rules = config.get("request_rules").items().filter(|rule| {
                let present = rule.get("on_header_present");
                namespace_is(&present, namespace) && present.get("key").text() == path.first().copied()
            });
            rules
                .map(|place| match place.get("cookie").text() {
                    Some(cookie) => Made {
                        place,
                        header: Some("cookie".to_owned()),
                        what: format!("cookie {cookie:?} of requests"),
                    },
                    None => of_header(place, place.get("header").text().unwrap_or_default()),
                })
                .collect()
        }
        ("json_to_metadata", Target::Metadata { namespace, path }) => {
            let rules = config.at("request_rules.rules").items().filter(|rule| {
                let present = rule.get("on_present");
                namespace_is(&present, namespace) && present.get("key").text() == path.first().copied()
            });
            rules.map(|place| Made { place, header: None, what: "the body of requests".to_owned() }).collect()
        }
        ("set_metadata", Target::Metadata { namespace, path }) => {
            let all = config.get("metadata").items().chain([config]);
            let named = all.filter(|one| one.get("metadata_namespace").is(namespace));
            named
                .flat_map(|one| {
                    let value = path.iter().fold(one.get("value"), |value, name| value.get(name));
                    of_format(value)
                })
                .collect()
        }
        ("set_filter_state", Target::State(key)) => {
            let values = config.get("on_request_headers").items();
            let named = values.filter(|value| {
                let name = value.get("object_key");
                if name.exists() { name.is(key) } else { value.get("factory_key").is(key) }
            });
            named.flat_map(|value| of_format(value.get("format_string"))).collect()
        }
        _ => Vec::new(),
    }
}

fn of_header<'a>(place: Place<'a>, name: &str) -> Made<'a> {
    Made { place, header: Some(name.to_ascii_lowercase()), what: format!("header {name:?} of requests") }
}

/// The request headers in a format that has nothing else of the request in it.
fn of_format(format: Place<'_>) -> Vec<Made<'_>> {
    let Kind::Scalar(scalar) = &format.node.kind else {
        let inner = format.members().map(|(_, inner)| inner).chain(format.items());
        return inner.flat_map(of_format).collect();
    };
    let mut made = Vec::new();
    // Commands of the format stand between percent signs: every second part.
    for command in scalar.text.split('%').skip(1).step_by(2).filter(|command| !command.is_empty()) {
        let names = ["REQ(", "REQUEST_HEADER("].iter().find_map(|word| command.strip_prefix(word));
        let Some((names, _)) = names.and_then(|names| names.split_once(')')) else { return Vec::new() };
        made.extend(names.split('?').map(|name| of_header(format, name)));
    }
    made
}

/// Whether a client's own value never gets to our filter, past the filters before it.
pub(super) fn is_overwritten(chain: &Chain<'_>, before: &[&Filter<'_>], name: &str) -> bool {
    let manager = chain.manager;
    let mut removed = chain.routes.into_iter().flat_map(|routes| routes.get("internal_only_headers").items());
    if removed.any(|header| is_name(&header, name)) {
        return true;
    }
    let forward = manager.get("forward_client_cert_details");
    let sanitized = !forward.exists() || forward.is("SANITIZE") || forward.is("SANITIZE_SET");
    if name == "x-forwarded-client-cert" && sanitized {
        return true;
    }
    let mut early = manager.get("early_header_mutation_extensions").items();
    if early.any(|one| mutations_overwrite(typed(&one.get("typed_config")).1.get("mutations"), name)) {
        return true;
    }
    before.iter().any(|filter| match filter.word() {
        "basic_auth" => is_name(&filter.config.get("forward_username_header"), name),
        "api_key_auth" => is_name(&filter.config.at("forwarding.header"), name),
        "jwt_authn" => filter.config.get("providers").members().any(|(_, provider)| {
            let mut claims = provider.get("claim_to_headers").items();
            claims.any(|claim| is_name(&claim.get("header_name"), name))
                || is_name(&provider.get("forward_payload_header"), name)
        }),
        "header_mutation" => mutations_overwrite(filter.config.at("mutations.request_mutations"), name),
        "ext_authz" => is_always_asked(&filter.config),
        // It overwrites the header of the token alone.
        "oauth2" => name.eq_ignore_ascii_case("authorization"),
        word => ANYTHING.contains(&word),
    })
}

/// Whether `ext_authz` lets no request pass that its service has not seen: what the client sent would
/// stay in it.
fn is_always_asked(config: &Place<'_>) -> bool {
    let share = config.at("filter_enabled.default_value");
    let whole = match share.get("denominator").text() {
        Some("TEN_THOUSAND" | "1") => 10_000,
        Some("MILLION" | "2") => 1_000_000,
        _ => 100,
    };
    !config.get("failure_mode_allow").is_true()
        && (!share.exists() || share.get("numerator").number().is_some_and(|numerator| numerator >= whole))
}

/// Whether mutations set or remove a header whatever is there. Adding a value, or setting it only
/// where none is, keeps the client's.
fn mutations_overwrite(mutations: Place<'_>, name: &str) -> bool {
    mutations.items().any(|mutation| {
        let append = mutation.get("append");
        let action = append.get("append_action");
        let overwrites = ["OVERWRITE_IF_EXISTS_OR_ADD", "OVERWRITE_IF_EXISTS", "2", "3"];
        is_name(&mutation.get("remove"), name)
            || is_name(&append.at("header.key"), name) && overwrites.iter().any(|word| action.is(word))
    })
}

pub(super) fn is_name(place: &Place<'_>, name: &str) -> bool {
    place.text().is_some_and(|text| text.eq_ignore_ascii_case(name))
}
