//! `fencepost-store check`: reads Envoy bootstraps, resource files and manifests of meshes and
//! gateways, and says what in them would break a promise, with its line.
//!
//! It runs offline and believes what is written: what comes from a control plane is not seen, and
//! said so (`not_checked`). It is no validator of Envoy's own configuration.
//!
//! `tree` has values with their lines, `world` puts files together, the others each check one
//! matter. Codes are stable.

mod before;
mod buffers;
mod clusters;
mod code;
mod finding;
mod guard;
mod identity;
mod ids;
mod jwt;
mod keys;
mod kubernetes;
mod loopback;
mod loopback_chain;
mod loose;
mod matching;
mod misplaced;
mod nested;
mod order;
mod origin;
mod patches;
mod peer;
mod place;
mod replies;
mod routes;
mod scopes;
mod settings;
mod shadow;
mod spellings;
mod switch;
mod times;
mod tree;
mod undone;
mod unused;
mod upgrades;
mod upstream;
mod world;

pub use code::Code;
pub use finding::{Finding, Report, Severity, Summary};

use clap::{Args, ValueEnum};
use fencepost_filter_core::policy::Mode;
use guard::{Configuration, Guard, is_ours};
use place::{Findings, Place};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use world::{Chain, File, World};

/// Largest file that is read.
const FILE_MAX: usize = 32 << 20;

/// Arguments of the command.
#[derive(Debug, Args)]
pub struct Check {
    /// Envoy bootstraps, resource files or config dumps (YAML or JSON), or manifests of Istio, Envoy
    /// Gateway or Kubernetes; `-` is standard input. Files given together are read together.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    /// How findings are written.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,

    /// Take warnings for errors.
    #[arg(long)]
    strict: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    Text,
    Json,
}

/// A file that can't be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: not readable: {message}")]
pub struct Unreadable {
    /// The file.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Why.
    pub message: String,
}

impl Check {
    /// Runs it: 0 is clean, 1 has errors, 2 could not read.
    pub fn run(&self) -> ExitCode {
        let mut files = Vec::new();
        for path in &self.files {
            match bytes_of(path) {
                Ok(bytes) => files.push((path.display().to_string(), bytes)),
                Err(error) => {
                    eprintln!("fencepost-store: {}: {error}", path.display());
                    return ExitCode::from(2);
                }
            }
        }
        let report = match check(&files) {
            Ok(report) => report,
            Err(error) => {
                eprintln!("fencepost-store: {error}");
                return ExitCode::from(2);
            }
        };
        let text = match self.format {
            Format::Text => Ok(report.to_string()),
            Format::Json => serde_json::to_string_pretty(&report).map(|json| json + "\n"),
        };
        // A reader that has gone, or a full disk, is not a clean file either.
        let written = text
            .map_err(std::io::Error::from)
            .and_then(|text| std::io::stdout().lock().write_all(text.as_bytes()));
        if let Err(error) = written {
            eprintln!("fencepost-store: the report can't be written: {error}");
            return ExitCode::from(2);
        }
        if report.is_clean(self.strict) { ExitCode::SUCCESS } else { ExitCode::from(1) }
    }
}

/// The contents of a file; `-` is standard input.
fn bytes_of(path: &Path) -> std::io::Result<Vec<u8>> {
    if path.as_os_str() != "-" {
        return std::fs::read(path);
    }
    let mut bytes = Vec::new();
    std::io::stdin().lock().read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Checks files: their names and contents.
pub fn check(files: &[(String, Vec<u8>)]) -> Result<Report, Unreadable> {
    let mut findings = Findings::default();
    let read: Vec<File> =
        files.iter().map(|(name, bytes)| read(name, bytes, &mut findings)).collect::<Result<_, _>>()?;
    let mut filters = 0;
    for world in worlds(&read, &mut findings, &mut filters) {
        filters += check_world(&world, &mut findings);
    }
    if filters == 0
        && let Some(first) = read.first()
    {
        let place = Place::new(&first.name, first.documents.first().unwrap_or(&tree::MISSING));
        let expected = "a file with a filter of Fencepost, if one was meant";
        findings.warning(place, Code::NothingFound, "no filter of Fencepost in any file", expected);
    }
    Ok(Report::new(findings.0, read.len(), filters))
}

fn read(name: &str, bytes: &[u8], findings: &mut Findings) -> Result<File, Unreadable> {
    let unreadable = |line, message: String| Unreadable { file: name.to_owned(), line, message };
    if bytes.len() > FILE_MAX {
        return Err(unreadable(1, format!("larger than {FILE_MAX} bytes")));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let before = bytes.get(..error.valid_up_to()).unwrap_or_default();
        unreadable(before.iter().filter(|byte| **byte == b'\n').count() + 1, "not UTF-8".to_owned())
    })?;
    let parsed = tree::parse(text, 1);
    let mut documents = parsed.map_err(|error| unreadable(error.line, error.message))?;
    let is_json = is_json(name, text);
    for document in documents.iter_mut().filter(|document| is_json || kubernetes::is_manifest(document)) {
        document.take_for_json();
    }
    let mut inner = Vec::new();
    for document in &documents {
        let (found, unread) = kubernetes::embedded(document);
        inner.extend(found);
        for error in unread {
            let place = Place::nothing(name).on_line(error.line);
            let found = format!("a file in a ConfigMap that is not readable: {}", error.message);
            findings.note(place, Code::NotChecked, found, "YAML or JSON, to check it as well");
        }
    }
    let pieces = documents.iter().flat_map(patches::pieces).collect();
    documents.extend(inner);
    let readable = |document: &tree::Node| match &document.kind {
        tree::Kind::Map(_) | tree::Kind::Null => true,
        // Listeners or resources, as tools of meshes print them.
        tree::Kind::List(items) => items.iter().any(is_resource),
        _ => false,
    };
    if !documents.iter().all(readable) {
        return Err(unreadable(1, "neither a map nor empty".to_owned()));
    }
    Ok(File { name: name.to_owned(), documents, pieces })
}

/// Whether Envoy and others would read a file as JSON: by its name, or without one by its text.
fn is_json(name: &str, text: &str) -> bool {
    let ends_in = |ends: &[&str]| ends.iter().any(|end| name.to_ascii_lowercase().ends_with(end));
    let looks_so = text.trim_start().starts_with(['{', '[']);
    ends_in(&[".json"])
        || !ends_in(&[".yaml", ".yml"])
            && looks_so
            && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}

fn is_resource(node: &tree::Node) -> bool {
    node.get("@type").exists() || node.get("filter_chains").exists()
}

/// Puts documents together. Resource files belong to the only bootstrap, or to those that name
/// them, or else to a world of their own.
fn worlds<'a>(files: &'a [File], findings: &mut Findings, filters: &mut usize) -> Vec<World<'a>> {
    let elsewhere = || World { open: true, ..World::default() };
    // Meshes and gateways patch different proxies.
    let (mut mesh, mut gateway) = (elsewhere(), elsewhere());
    let (mut bootstraps, mut resources) = (Vec::new(), Vec::new());
    let mut rest = elsewhere();
    for file in files {
        for piece in &file.pieces {
            let world = if piece.mesh { &mut mesh } else { &mut gateway };
            world.pieces.push((piece, Place::new(&file.name, &piece.node)));
        }
        for document in &file.documents {
            let place = Place::new(&file.name, document);
            // As the admin interface and tools of meshes print it.
            let wrapped = place.get("bootstrap");
            let place = if wrapped.exists() { wrapped } else { place };
            let document = place.node;
            if kubernetes::is_manifest(document) {
                *filters += kubernetes::add(place, &mut mesh, &mut gateway, findings);
            } else if document.get("configs").exists() {
                let mut world = World::default();
                world.add_dump(place);
                bootstraps.push((world, String::new()));
            } else if document.get("resources").exists() {
                resources.extend(place.get("resources").items().map(|resource| (file, resource)));
            } else if document.get("@type").exists() {
                resources.push((file, place));
            } else if document.get("static_resources").exists() || document.get("dynamic_resources").exists()
            {
                let mut world = World::default();
                world.add_bootstrap(place);
                bootstraps.push((world, document.to_json().to_string()));
            } else if place.at("store.decide_cluster").exists() {
                // The filter's configuration by itself.
                Configuration::read_struct(place, findings);
                *filters += 1;
            }
            for item in place.items() {
                if item.get("@type").exists() {
                    resources.push((file, item));
                } else if item.get("filter_chains").exists() {
                    rest.listeners.push(item);
                }
            }
        }
    }
    let only = bootstraps.len() == 1;
    let ours = world::names_of_ours(resources.iter().map(|(_, resource)| *resource));
    for (file, resource) in resources {
        let base = file.name.rsplit('/').next().unwrap_or(&file.name);
        let mut taken = false;
        for (world, text) in &mut bootstraps {
            if only || text.contains(base) {
                world.add_resource(resource);
                taken = true;
            }
        }
        if !taken {
            rest.add_resource(resource);
        }
    }
    let mut worlds: Vec<_> =
        bootstraps.into_iter().map(|(world, _)| world).chain([rest, mesh, gateway]).collect();
    for world in &mut worlds {
        world.ours.clone_from(&ours);
        world.connect();
    }
    worlds
}

/// Checks a world and returns how many filters of ours it has.
fn check_world<'a>(world: &World<'a>, findings: &mut Findings) -> usize {
    let mut guards: Vec<Guard<'a>> = Vec::new();
    let mut used: Vec<unused::Used> = Vec::new();
    for chain in &world.chains {
        let ours: Vec<_> = (0..).zip(&chain.filters).filter(|(_, filter)| is_ours(filter)).collect();
        if ours.is_empty() && !nested::has_ours(chain) {
            routes::check_without_filter(chain, findings);
        }
        if !ours.is_empty() {
            check_discovered(chain, findings);
        }
        for (index, filter) in ours {
            let guard = Guard::read(filter.clone(), findings);
            used.push(check_chain(world, chain, index, &guard, findings));
            guards.push(guard);
        }
    }
    if !world.open {
        unused::check(&guards, &used, findings);
    }
    guards.extend(nested::check(world, findings));
    guards.extend(loose::check(world, findings));
    ids::check(&guards, findings);
    guards.len()
}

/// Wasm filters beside ours that are discovered, with something else in their place until then: they
/// may be ours as well.
fn check_discovered(chain: &Chain<'_>, findings: &mut Findings) {
    for filter in chain.filters.iter().filter(|filter| !is_ours(filter)) {
        let default = filter.place.at("config_discovery.default_config");
        if filter.word() == "wasm" && !filter.config.exists() && default.exists() {
            let found = format!("{:?}, a wasm filter that is discovered and not in the files", filter.name);
            let expected = "the file that has it, and no default_config if it is this filter as well";
            findings.note(default, Code::NotChecked, found, expected);
        }
    }
}

/// Checks a filter in its chain; returns the policies in use.
fn check_chain<'a>(
    world: &World<'a>,
    chain: &Chain<'a>,
    index: usize,
    guard: &Guard<'a>,
    findings: &mut Findings,
) -> unused::Used {
    clusters::check(world, guard, findings);
    upgrades::check(world, chain.manager, findings);
    misplaced::check(chain, guard, findings);
    let routes::Guarded { marked, unreadable } = routes::check(chain, guard, findings);
    order::check(chain, index, &marked, findings);
    identity::check(chain, index, guard, &marked, findings);
    let behind = chain.filters.get(index + 1..).unwrap_or_default();
    spellings::check(chain, &marked, findings);
    let before = chain.filters.get(..index).unwrap_or_default();
    for one in marked.iter().filter(|one| one.policy.mode != Mode::Off && one.calls_upstream()) {
        keys::check(chain, before, one, findings);
        times::check(chain.manager, true, guard, one, findings);
        buffers::check(chain, guard, one, findings);
        before::check(chain, index, guard, one, findings);
        if one.is_inline() {
            undone::check(behind, one, findings);
            upstream::check(world, behind, one, findings);
        }
    }
    replies::check(chain.manager, &marked, findings);
    loopback::check(world, guard, &marked, findings);
    if chain.routes.is_none() {
        let found = "routes that are not in the files";
        findings.note(
            chain.manager,
            Code::NotChecked,
            found,
            "the file that has them, to check them as well",
        );
        return unused::Used::Unknown;
    }
    if unreadable || chain.routes.is_some_and(|routes| routes.get("vhds").exists()) {
        return unused::Used::Unknown;
    }
    unused::Used::Names(marked.iter().map(|one| one.policy.name.clone()).collect())
}

/// The JSON Schema of the filter's configuration, as it is shipped.
pub fn schema_text() -> String {
    format!("{:#}\n", fencepost_filter_core::policy::schema())
}
