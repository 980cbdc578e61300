//! URLs with places for what is looked up: `https://billing.example/credits/{operation_id}`.
//!
//! Every value is percent-encoded but for letters, digits and `-._~`, so none can add a segment, a
//! parameter or a host. Places stand in path and query only.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Longest URL that is sent.
const URL_MAX: usize = 8 * 1024;

/// Which values there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Places {
    /// Those of an operation, and `detail.NAME`.
    Operation,
    /// Those of a held key.
    Key,
}

impl Places {
    fn knows(self, name: &str) -> bool {
        match self {
            Self::Operation => {
                ["operation_id", "issuer", "grant_id", "tenant", "caller", "caller_namespace"].contains(&name)
                    || name.strip_prefix("detail.").is_some_and(|name| !name.is_empty())
            }
            Self::Key => ["key", "fence", "scope"].contains(&name),
        }
    }

    fn expected(self) -> &'static str {
        match self {
            Self::Operation => {
                "{operation_id}, {issuer}, {grant_id}, {tenant}, {caller}, {caller_namespace} or {detail.NAME}"
            }
            Self::Key => "{key}, {fence} or {scope}",
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Part {
    Text(String),
    Place(String),
}

/// A URL with places.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Template {
    is_encrypted: bool,
    authority: String,
    parts: Vec<Part>,
}

/// Values by the name of their place.
pub type Values = BTreeMap<String, String>;

impl Template {
    /// Reads one; says what would be right.
    pub fn parse(text: &str, places: Places) -> Result<Self, String> {
        let (is_encrypted, rest) = match (text.strip_prefix("https://"), text.strip_prefix("http://")) {
            (Some(rest), _) => (true, rest),
            (None, Some(rest)) => (false, rest),
            (None, None) => return Err("expected https://HOST:PORT/PATH".into()),
        };
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let good = |byte: u8| byte.is_ascii_alphanumeric() || b".-:[]_".contains(&byte);
        if authority.is_empty() || !authority.bytes().all(good) {
            return Err("expected a host, and a port, before the first / and no place in it".into());
        }
        check_port(authority)?;
        let mut parts = Vec::new();
        let mut left = format!("/{path}");
        if left.bytes().any(|byte| !byte.is_ascii_graphic() || byte == b'#') {
            return Err("expected visible ASCII without #".into());
        }
        while let Some((text, after)) = left.split_once('{') {
            let (name, after) = after.split_once('}').ok_or("found { without }")?;
            if !places.knows(name) {
                return Err(format!("found {{{name}}}; expected {}", places.expected()));
            }
            parts.push(Part::Text(text.to_owned()));
            parts.push(Part::Place(name.to_owned()));
            left = after.to_owned();
        }
        parts.push(Part::Text(left));
        Ok(Self { is_encrypted, authority: authority.to_owned(), parts })
    }

    /// Is it `https`?
    pub fn is_encrypted(&self) -> bool {
        self.is_encrypted
    }

    /// Host and port.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Does a place of this name stand in it?
    pub fn names(&self, name: &str) -> bool {
        self.parts.iter().any(|part| *part == Part::Place(name.to_owned()))
    }

    /// Path and query with these values; says which one is missing, or that it grows too long.
    pub fn fill(&self, values: &Values) -> Result<String, String> {
        let mut path = String::new();
        for part in &self.parts {
            match part {
                Part::Text(text) => path.push_str(text),
                Part::Place(name) => {
                    let value = values.get(name).ok_or_else(|| format!("there is no {name} to ask with"))?;
                    encode(&mut path, value);
                }
            }
        }
        if path.len() > URL_MAX { Err(format!("the URL is longer than {URL_MAX} bytes")) } else { Ok(path) }
    }
}

/// A port is a number that connects; a host without one is fine.
fn check_port(authority: &str) -> Result<(), String> {
    let (host, after) = match authority.strip_prefix('[') {
        Some(rest) => rest.split_once(']').ok_or("expected ] after the address in [ ]")?,
        None => authority
            .split_once(':')
            .map_or((authority, ""), |(host, _)| (host, authority.get(host.len()..).unwrap_or_default())),
    };
    if host.is_empty() {
        return Err("expected a host before the port".into());
    }
    let port = after.strip_prefix(':').map(|port| port.parse::<u16>().ok().filter(|port| *port > 0));
    match port {
        Some(None) => Err(format!("found the port {after:?}; expected 1 to 65535 after one :")),
        None if !after.is_empty() => Err(format!("found {after:?} after the address; expected : and a port")),
        Some(Some(_)) | None => Ok(()),
    }
}

fn encode(path: &mut String, value: &str) {
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            path.push(char::from(byte));
        } else {
            // Cannot fail: a String takes everything.
            let _ = write!(path, "%{byte:02X}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_can_not_change_what_is_asked() {
        let template =
            Template::parse("http://127.0.0.1:9/c/{operation_id}?a={detail.account}&b=1", Places::Operation);
        let template = template.unwrap();
        let values = Values::from([
            ("operation_id".into(), "../x?y=1#z".into()),
            ("detail.account".into(), "A&b=2 ü%".into()),
        ]);
        assert_eq!(template.fill(&values).unwrap(), "/c/..%2Fx%3Fy%3D1%23z?a=A%26b%3D2%20%C3%BC%25&b=1");
        assert!(template.names("operation_id") && !template.names("tenant"));
        assert!(template.fill(&Values::new()).unwrap_err().contains("operation_id"));
    }

    #[test]
    fn a_host_with_a_port_or_without_one_is_read() {
        for authority in ["h", "h:1", "127.0.0.1:65535", "[::1]", "[::1]:80"] {
            let read = Template::parse(&format!("http://{authority}/{{key}}"), Places::Key).unwrap();
            assert_eq!((read.authority(), read.is_encrypted()), (authority, false));
            let read = Template::parse(&format!("https://{authority}/{{key}}"), Places::Key).unwrap();
            assert_eq!((read.authority(), read.is_encrypted()), (authority, true));
        }
    }

    #[test]
    fn a_template_that_can_not_be_right_is_refused() {
        for (text, places, says) in [
            ("ftp://x/{key}", Places::Key, "https://"),
            ("https://{key}/x", Places::Key, "host"),
            ("http:///x", Places::Key, "host"),
            ("http://{key}/x", Places::Key, "host"),
            ("http://h/{operation_id}", Places::Key, "{key}, {fence}"),
            ("http://h/{key}", Places::Operation, "{operation_id}"),
            ("http://h/{detail.}", Places::Operation, "{detail.NAME}"),
            ("http://h/{key", Places::Key, "without }"),
            ("http://h/a b", Places::Key, "ASCII"),
            ("http://user@h/", Places::Key, "host"),
            ("http://h:65536/{key}", Places::Key, "65535"),
            ("http://h:0/{key}", Places::Key, "65535"),
            ("http://h:http/{key}", Places::Key, "65535"),
            ("http://h:/{key}", Places::Key, "65535"),
            ("http://::1/{key}", Places::Key, "host"),
            ("http://[::1/{key}", Places::Key, "]"),
            ("http://[::1]x/{key}", Places::Key, "a port"),
            ("http://[::1]:70000/{key}", Places::Key, "65535"),
        ] {
            let error = Template::parse(text, places).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
