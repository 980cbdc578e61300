//! The commands that the documents name are commands of the program.

use super::*;
use std::path::Path;

/// What stands in capitals, and something that could be there.
const VALUES: [(&str, &str); 14] = [
    ("STORED_KEY", "prod:07070707070707070707070707070707"),
    ("NAMESPACE", "https://login.example"),
    ("OPERATION_ID", "018f2b1c-7e52-7cc3-98c4-dc0c0c07398f"),
    ("PROVIDERS_ID", "cr_1"),
    ("ISSUER", "https://approvals.example"),
    ("CALLER", "alice"),
    ("TEXT", "why"),
    ("JSON", "\"anonymous\""),
    ("HEX", "07070707070707070707070707070707"),
    ("URL", "sqlite:s.sqlite"),
    ("KEY", "k1"),
    ("ID", "1"),
    ("FILE", "file"),
    ("DURATION", "1h"),
];

/// Commands in fenced blocks and in code spans, without what only hints at more.
fn commands(document: &str) -> Vec<String> {
    let (mut found, mut fenced) = (Vec::new(), false);
    for line in document.replace("\\\n", " ").lines() {
        let text = line.trim();
        if text.starts_with("```") {
            fenced = !fenced;
        } else if fenced {
            found.push(text.to_owned());
        } else {
            found.extend(text.split('`').skip(1).step_by(2).map(str::to_owned));
        }
    }
    let complete = |text: &String| text.starts_with("fencepost-store ") && !text.contains("...");
    let plain = |text: String| text.split(['#', '|']).next().unwrap_or_default().trim().to_owned();
    found.into_iter().filter(complete).map(plain).collect()
}

/// Words as a shell makes them of plain and quoted text.
fn words(command: &str) -> Vec<String> {
    let (mut all, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in command.chars() {
        match quote {
            Some(end) if c == end => quote = None,
            None if c == '\'' || c == '"' => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            None if c == ' ' => all.extend(word.take()),
            _ => word.get_or_insert_default().push(c),
        }
    }
    all.extend(word);
    all
}

fn filled(word: &str) -> String {
    let found = VALUES.iter().find(|(name, _)| *name == word);
    found.map_or_else(|| word.to_owned(), |(_, value)| (*value).to_owned())
}

#[test]
fn commands_of_the_documents_are_commands_of_the_program() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let documents = std::fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let mut seen = 0;
    for path in
        documents.chain([root.join("README.md")]).filter(|path| path.extension().is_some_and(|e| e == "md"))
    {
        for command in commands(&std::fs::read_to_string(&path).unwrap()) {
            let words: Vec<_> = words(&command).iter().map(|word| filled(word)).collect();
            // A name of a command alone is talked about, not told to be run.
            let parsed = Cli::try_parse_from(&words);
            let named = words.len() <= 2 || parsed.as_ref().is_err_and(|error| !error.use_stderr());
            assert!(parsed.is_ok() || named, "{}: {command}\n{}", path.display(), parsed.unwrap_err());
            seen += 1;
        }
    }
    assert!(seen > 25, "only {seen} commands found");
}
