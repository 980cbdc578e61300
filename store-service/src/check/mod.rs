//! `fencepost-store check`: reads Envoy bootstraps, resource files and manifests of meshes and
//! gateways, and says what in them would break a promise, with its line.
//!
//! It runs offline and believes what is written: what comes from a control plane is not seen, and
//! said so (`not_checked`). It is no validator of Envoy's own configuration.
//!
//! `tree` has values with their lines, `world` puts files together, the others each check one
//! matter. Codes are stable.

mod buffers;
mod clusters;
mod code;
mod finding;
mod guard;
mod identity;
mod kubernetes;
mod loopback;
mod order;
mod place;
mod replies;
mod routes;
mod times;
mod tree;
mod world;

pub use code::Code;
pub use finding::{Finding, Report, Severity, Summary};

use clap::{Args, ValueEnum};
use guard::{Guard, is_ours};
use place::{Findings, Place};
use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use world::{Chain, File, Position, World};

/// Largest file that is read.
const FILE_MAX: usize = 32 << 20;

/// Arguments of the command.
#[derive(Debug, Args)]
pub struct Check {
    /// Envoy bootstraps, resource files or config dumps (YAML or JSON), or manifests of Istio, Envoy
    /// Gateway or Kubernetes. Files given together are read together.
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
            match std::fs::read(path) {
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

/// Checks files: their names and contents.
pub fn check(files: &[(String, Vec<u8>)]) -> Result<Report, Unreadable> {
    let read: Vec<File> = files.iter().map(|(name, bytes)| read(name, bytes)).collect::<Result<_, _>>()?;
    let mut findings = Findings::default();
    let mut filters = 0;
    for world in worlds(&read, &mut findings, &mut filters) {
        filters += check_world(&world, &mut findings);
    }
    if filters == 0
        && let Some(first) = read.first()
    {
        let place = Place::new(&first.name, first.documents.first().unwrap_or(&tree::MISSING));
        let expected = "a file with a filter of Fencepost, if one was meant";
        findings.note(place, Code::NothingFound, "no filter of Fencepost in any file", expected);
    }
    Ok(Report::new(findings.0, read.len(), filters))
}

fn read(name: &str, bytes: &[u8]) -> Result<File, Unreadable> {
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
    let mut inner = Vec::new();
    for document in &documents {
        let found = kubernetes::embedded(document);
        inner.extend(found.map_err(|error| unreadable(error.line, error.message))?);
    }
    documents.extend(inner);
    if !documents.iter().all(|document| matches!(document.kind, tree::Kind::Map(_) | tree::Kind::Null)) {
        return Err(unreadable(1, "neither a map nor empty".to_owned()));
    }
    Ok(File { name: name.to_owned(), documents })
}

/// Puts documents together. Resource files belong to the only bootstrap, or to those that name
/// them, or else to a world of their own.
fn worlds<'a>(files: &'a [File], findings: &mut Findings, filters: &mut usize) -> Vec<World<'a>> {
    let elsewhere = || World { open: true, ..World::default() };
    // Meshes and gateways patch different proxies.
    let (mut mesh, mut gateway) = (elsewhere(), elsewhere());
    let (mut bootstraps, mut resources) = (Vec::new(), Vec::new());
    for file in files {
        for document in &file.documents {
            let place = Place::new(&file.name, document);
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
            }
        }
    }
    let mut rest = elsewhere();
    let only = bootstraps.len() == 1;
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
    worlds.iter_mut().for_each(World::connect);
    worlds
}

/// Checks a world and returns how many filters of ours it has.
fn check_world<'a>(world: &World<'a>, findings: &mut Findings) -> usize {
    let mut guards: Vec<Guard<'a>> = Vec::new();
    let mut used: Vec<(usize, BTreeSet<String>)> = Vec::new();
    for chain in &world.chains {
        let ours: Vec<_> = (0..).zip(&chain.filters).filter(|(_, filter)| is_ours(filter)).collect();
        if ours.is_empty() {
            routes::check_without_filter(chain, findings);
        }
        for (index, filter) in ours {
            let guard = Guard::read(filter.clone(), findings);
            let names = check_chain(world, chain, index, &guard, findings);
            if let Some(names) = names {
                used.push((guards.len(), names));
            }
            guards.push(guard);
        }
    }
    check_unused(&guards, &used, findings);
    let first_loose = guards.len();
    for loose in kubernetes::ours(world) {
        let guard = Guard::read(loose.filter.clone(), findings);
        if loose.position == Position::First {
            kubernetes::report_first(&guard.configuration, loose.filter.place, findings);
        }
        clusters::check(world, &guard, findings);
        loopback::check(world, &guard, &[], findings);
        guards.push(guard);
    }
    routes::check_loose(world, guards.get(first_loose..).unwrap_or_default(), findings);
    check_ids(&guards, findings);
    guards.len()
}

/// Checks a filter in its chain; returns the policies in use, if its routes are known.
fn check_chain<'a>(
    world: &World<'a>,
    chain: &Chain<'a>,
    index: usize,
    guard: &Guard<'a>,
    findings: &mut Findings,
) -> Option<BTreeSet<String>> {
    order::check(chain, index, findings);
    identity::check(chain, index, guard, findings);
    clusters::check(world, guard, findings);
    let marked = routes::check(chain, guard, findings);
    for one in &marked {
        times::check(chain, guard, one, findings);
        buffers::check(chain, guard, one, findings);
    }
    replies::check(chain, &marked, findings);
    loopback::check(world, guard, &marked, findings);
    if chain.routes.is_none() {
        let found = "routes that are not in the files";
        findings.note(
            chain.manager,
            Code::NotChecked,
            found,
            "the file that has them, to check them as well",
        );
        return None;
    }
    Some(marked.iter().map(|one| one.policy.name.clone()).collect())
}

/// Policies that no route names. Filters with equal configurations are one.
fn check_unused(guards: &[Guard<'_>], used: &[(usize, BTreeSet<String>)], findings: &mut Findings) {
    for (index, _) in used {
        let Some(guard) = guards.get(*index) else { continue };
        let same: Vec<_> = used
            .iter()
            .filter(|(other, _)| {
                guards.get(*other).is_some_and(|other| other.configuration.json == guard.configuration.json)
            })
            .collect();
        let seen_before = same.iter().any(|(other, _)| other < index);
        let everywhere = guards.len() == used.len();
        if seen_before || !everywhere {
            continue;
        }
        for policy in guard.configuration.policies() {
            if !same.iter().any(|(_, names)| names.contains(&policy.name)) {
                let place = guard.configuration.line_of(&format!("policies.{}", policy.name));
                let found = format!("policy {:?}, which no route names", policy.name);
                findings.warning(place, Code::PolicyUnused, found, "a route under it, or no such policy");
            }
        }
    }
}

/// Filters with the same ids must be the same.
fn check_ids(guards: &[Guard<'_>], findings: &mut Findings) {
    let ids = |guard: &Guard<'_>| {
        let plugin = guard.plugin();
        let id = |place: Place<'_>| place.text().unwrap_or_default().to_owned();
        (id(plugin.at("vm_config.vm_id")), id(plugin.get("root_id")))
    };
    for (index, guard) in guards.iter().enumerate() {
        let earlier = guards.get(..index).unwrap_or_default();
        let other = |other: &&Guard<'_>| {
            ids(other) == ids(guard) && other.plugin().node.to_json() != guard.plugin().node.to_json()
        };
        if guard.plugin().exists() && earlier.iter().any(|one| other(&one)) {
            let (vm, root) = ids(guard);
            let found = format!("vm_id {vm:?} and root_id {root:?} of another filter that differs");
            let expected = "ids of its own: Envoy up to 1.39 may take one plugin for both";
            findings.warning(guard.plugin().get("root_id"), Code::RootIdShared, found, expected);
        }
    }
}

/// The JSON Schema of the filter's configuration, as it is shipped.
pub fn schema_text() -> String {
    format!("{:#}\n", fencepost_filter_core::policy::schema())
}
