//! Names of the findings. They are stable: scripts may rely on them.

use serde::Serialize;
use std::fmt;

macro_rules! codes {
    ($($variant:ident $name:literal $meaning:literal,)*) => {
        /// Kind of a finding.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        pub enum Code {
            $(#[doc = $meaning] #[serde(rename = $name)] $variant,)*
        }

        impl Code {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Its name.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// What it means, in a few words.
            pub fn meaning(self) -> &'static str {
                match self { $(Self::$variant => $meaning,)* }
            }
        }
    };
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

codes! {
    ConfigMissing "config_missing" "the filter has no configuration",
    ConfigForm "config_form" "the configuration is neither a StringValue with JSON text nor a Struct",
    ConfigInvalid "config_invalid" "the filter would refuse this configuration",
    HostOptionMissing "host_option_missing" "the option `allow_on_headers_stop_iteration` is not on",
    HostOptionUnsettable "host_option_unsettable" "this kind of manifest can't set the option `allow_on_headers_stop_iteration`",
    FailurePolicyOpen "failure_policy_open" "requests pass unguarded when the filter fails",
    FailurePolicyNoReload "failure_policy_no_reload" "a filter that failed once refuses everything until Envoy starts anew",
    VmIdEmpty "vm_id_empty" "the VM has no id, so it is shared with other filters without one",
    RootIdShared "root_id_shared" "two filters that differ share their ids",
    RuntimeUntested "runtime_untested" "a wasm runtime that is not tested",
    AuthenticationMissing "authentication_missing" "nothing before the filter makes the identity that the scope needs",
    AuthenticationAfter "authentication_after" "authentication runs behind the filter",
    AuthenticationOff "authentication_off" "authentication is off on a marked route",
    AuthenticationException "authentication_exception" "a rule of jwt_authn asks for no token on a part of a marked route",
    RequiredMetadataMissing "required_metadata_missing" "nothing before the filter leaves the metadata that a policy requires",
    JwtPayloadMissing "jwt_payload_missing" "a provider of jwt_authn does not leave the payload that the scope reads",
    PeerCertificateUnverified "peer_certificate_unverified" "client certificates are not asked for, or not checked",
    ScopeShared "scope_shared" "the scope is the same for all callers",
    ScopeChanges "scope_changes" "the scope is another with each token or request",
    FingerprintChanges "fingerprint_changes" "the fingerprint has a header that a retry has otherwise",
    FingerprintProperty "fingerprint_property" "the fingerprint names what no request has",
    FingerprintPath "fingerprint_path" "a path template of which nothing counts",
    LifetimeShort "lifetime_short" "an answer or unknown outcome is forgotten before a request must have ended",
    SuccessReleased "success_released" "what succeeded is not kept, and runs again",
    DownstreamKeysSame "downstream_keys_same" "two keys for one operation of a provider",
    KeyReplaced "key_replaced" "something before the filter makes the key, or takes it away",
    ScopeFromClient "scope_from_client" "metadata or filter state of the scope is made from what clients send",
    TrustedHeaderOpen "trusted_header_open" "nothing before the filter overwrites the header that is declared trusted",
    CacheAfter "cache_after" "a cache behind the filter",
    BodyFilterAfter "body_filter_after" "a filter behind can change the body, the answer or the route",
    BodyFilterBefore "body_filter_before" "a filter before changes bodies, and not always in the same way",
    RequestsBecomeGrpc "requests_become_grpc" "a filter before makes gRPC of requests, which can't be guarded",
    AnsweringFilterAfter "answering_filter_after" "a filter behind can answer by itself",
    CorsAfter "cors_after" "the CORS filter is behind, so replays lack its headers",
    UnknownFilterAfter "unknown_filter_after" "a filter behind that is not known here",
    HeadersUndone "headers_undone" "something behind the filter undoes the headers that it sets",
    UpgradeUnguarded "upgrade_unguarded" "an upgrade has filters of its own, without the filter",
    DefaultUnguarded "default_unguarded" "until the filter is discovered, something else runs in its place",
    RouterMissing "router_missing" "no router at the end of the filters",
    FilterMisplaced "filter_misplaced" "a patch puts the filter where it does not run, or takes it out",
    RoutePolicyUnknown "route_policy_unknown" "a route names a policy that does not exist",
    RoutePolicyMissing "route_policy_missing" "a route has metadata for the filter, but names no policy",
    RouteOverrideInvalid "route_override_invalid" "a route's overrides would be refused",
    MarkMisplaced "mark_misplaced" "metadata for the filter where it does not read it",
    RouteWithoutFilter "route_without_filter" "a marked route in a chain without the filter",
    RouteShadowed "route_shadowed" "an unmarked route takes the requests of a marked one",
    RouteException "route_exception" "an unmarked route comes first and takes a part of the requests of a marked one",
    PathSpellings "path_spellings" "other spellings of a guarded path reach the application unguarded",
    FilterDisabled "filter_disabled" "the filter is off on a marked route",
    MethodNeverGuarded "method_never_guarded" "a marked route whose method the policy does not guard",
    RouteAnswersItself "route_answers_itself" "a marked route redirects or answers by itself",
    PolicyUnused "policy_unused" "a policy that no route names",
    RouteRetries "route_retries" "retries run a guarded request more than once",
    RouteHedging "route_hedging" "hedging runs a guarded request more than once",
    RouteMirror "route_mirror" "guarded requests are mirrored",
    RouteInternalRedirect "route_internal_redirect" "internal redirects on a guarded route",
    RouteTimeoutReplaced "route_timeout_replaced" "the route's timeout is not the one that applies",
    PerTryTimeoutShort "per_try_timeout_short" "an attempt is cut before `max_run`",
    StreamIdleTimeoutShort "stream_idle_timeout_short" "a stream is cut while it waits",
    RequestTimeoutShort "request_timeout_short" "the request timeout ends while a request waits",
    RequestTimeoutMissing "request_timeout_missing" "clients of a listener at the edge may send as slowly as they like",
    StreamDurationShort "stream_duration_short" "a stream is cut before a guarded request can end",
    RequestBufferSmall "request_buffer_small" "the buffer is smaller than the largest request body",
    ResponseBufferSmall "response_buffer_small" "the buffer is smaller than the largest answer",
    LocalReplyRewritten "local_reply_rewritten" "`local_reply_config` would rewrite replays and problems",
    StoreClusterMissing "store_cluster_missing" "a cluster of the store does not exist",
    StoreClustersSame "store_clusters_same" "claims that wait share a cluster with the calls that free them",
    StoreClusterHttp1 "store_cluster_http1" "a cluster of the store does not use HTTP/2",
    StoreClusterBreakers "store_cluster_breakers" "the circuit breakers of a store cluster are too low for waiting claims",
    StoreConnectTimeoutLong "store_connect_timeout_long" "connecting to the store may take longer than the call",
    StoreStreamDurationShort "store_stream_duration_short" "calls to the store are cut before their timeout",
    DetachedClusterMissing "detached_cluster_missing" "the cluster of detached execution does not exist",
    DetachedWithoutLoopback "detached_without_loopback" "without a loopback, what the route does is not done",
    LoopbackNotInternal "loopback_not_internal" "the loopback cluster does not lead to an internal listener",
    LoopbackListenerMissing "loopback_listener_missing" "the internal listener does not exist",
    LoopbackListenerOpen "loopback_listener_open" "the loopback listener has an address of its own",
    InternalListenerExtensionMissing "internal_listener_extension_missing" "the bootstrap extension for internal listeners is missing",
    LoopbackRetriesOn "loopback_retries_on" "the loopback chain does not switch off retries",
    LoopbackMaxRunMissing "loopback_max_run_missing" "the loopback chain does not enforce `max_run`",
    LoopbackReportMissing "loopback_report_missing" "the loopback does not report how a request ended",
    LoopbackReportForgeable "loopback_report_forgeable" "an upstream can forge the report",
    LoopbackCatchAllMissing "loopback_catch_all_missing" "no route in the loopback is not reported",
    LoopbackRouteMissing "loopback_route_missing" "a guarded route does not exist in the loopback",
    LoopbackClientCertificate "loopback_client_certificate" "the loopback drops the client certificate header",
    LoopbackRemoteAddress "loopback_remote_address" "the loopback takes itself for the client",
    LoopbackFilter "loopback_filter" "a filter in the loopback chain that does not belong there",
    LoopbackGuarded "loopback_guarded" "the filter runs in the loopback chain as well",
    LoopbackClusterBreakers "loopback_cluster_breakers" "the circuit breakers of the loopback cluster are at their defaults",
    NotChecked "not_checked" "something that is referred to is not in the files",
    NothingFound "nothing_found" "no filter of Fencepost in any file",
}
