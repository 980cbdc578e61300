//! The log on standard error, and which spans and lines are made at all.
//!
//! What nobody reads must cost nothing: libraries open several spans for each call, and making them
//! takes as long as the rest of a claim. So no part here may leave its interest open.

use crate::trace::Traces;
use std::io::IsTerminal;
use tracing::{Level, Metadata, Subscriber};
use tracing_subscriber::filter::{FilterExt as _, LevelFilter, filter_fn};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer, registry};

/// Lines of the level in `FENCEPOST_LOG` (`info` without it) go to standard error, spans to `traces`.
pub fn init(traces: Option<&Traces>) {
    let level = EnvFilter::try_from_env("FENCEPOST_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let subscriber = registry().with(lines(level));
    // No layer at all where nothing is traced: one that is `None` counts as asking for everything.
    match traces {
        Some(traces) => subscriber.with(traces.layer()).init(),
        None => subscriber.init(),
    }
}

/// Log lines of this level and above.
fn lines<S>(level: EnvFilter) -> impl Layer<S>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    // With a bound of its own: a function without one undoes the bound of `level`.
    let shown = filter_fn(shows_no_values).with_max_level_hint(LevelFilter::TRACE);
    tracing_subscriber::fmt::layer()
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .with_filter(level.and(shown))
}

/// Whether a log line can't show what callers send. Below `info` these libraries write the values
/// of statements and the headers of requests, so nobody may turn that on.
fn shows_no_values(line: &Metadata<'_>) -> bool {
    const VERBOSE: [&str; 4] = ["tokio_postgres", "h2", "hyper", "hyper_util"];
    let library = line.target().split("::").next().unwrap_or_default();
    // A line that comes from the `log` crate names its own target inside.
    *line.level() <= Level::INFO || !(VERBOSE.contains(&library) || library == "log")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::TARGET;

    #[test]
    fn spans_that_nobody_reads_are_not_made() {
        let subscriber = registry().with(lines(EnvFilter::new("info")));
        assert_eq!(subscriber.max_level_hint(), Some(LevelFilter::INFO));
        tracing::subscriber::with_default(subscriber, || {
            assert!(tracing::trace_span!(target: "h2", "frame").is_disabled());
            assert!(tracing::trace_span!(target: TARGET, "call").is_disabled());
            assert!(!tracing::info_span!("shown").is_disabled());
        });
    }

    #[tokio::test]
    async fn with_a_collector_only_the_programs_own_spans_are_made() {
        let traces = Traces::to("http://127.0.0.1:9/v1/traces", None).expect("an endpoint");
        let subscriber = registry().with(lines(EnvFilter::new("info"))).with(traces.layer());
        tracing::subscriber::with_default(subscriber, || {
            assert!(tracing::trace_span!(target: "h2", "frame").is_disabled());
            assert!(!tracing::trace_span!(target: TARGET, "call").is_disabled());
        });
    }
}
