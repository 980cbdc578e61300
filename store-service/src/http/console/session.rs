//! Who is at the console: a signed cookie, made from an operator's token once.
//!
//! The cookie holds the token's digest, not the token, and when it was made; it is signed with a
//! key of this process, so a restart or another instance asks for the token again. Each request
//! looks the digest up among the tokens. A session that was logged out is remembered until it would have
//! ended by itself, so that a copy of its cookie opens nothing either. A form carries a second value made from the cookie
//! (`csrf`), which no other site can read; on top of it the cookie is `SameSite=Strict`, and a request
//! that says that it comes from another site is refused.

use super::super::Problem;
use axum::http::{HeaderMap, StatusCode, header};
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};
use subtle::ConstantTimeEq;

/// Name of the cookie.
const COOKIE: &str = "fencepost_console";

/// How long a session lives, in seconds: a shift.
const LIFETIME_S: u64 = 8 * 3_600;

/// Most logged out sessions that are remembered one by one; beyond, all that were begun before end.
const ENDED_MAX: usize = 10_000;

/// Digest of the token; all zeros where no tokens are asked for.
pub type Digest = [u8; 32];

/// Signs sessions.
pub struct Sessions {
    key: [u8; 32],
    ended: Mutex<Ended>,
}

/// Sessions that were logged out.
#[derive(Default)]
struct Ended {
    /// By what their forms carry; when they began, in seconds since 1970.
    one_by_one: HashMap<String, u64>,
    /// All that began by then.
    until: Option<u64>,
}

/// A session that was looked at.
pub struct Session {
    /// Of its token.
    pub digest: Digest,
    /// What forms of this session carry.
    pub csrf: String,
    /// When it began, in seconds since 1970.
    since: u64,
}

impl Sessions {
    /// With a key of this process. Without random numbers there are no sessions.
    pub fn new() -> Option<Self> {
        let mut key = [0; 32];
        getrandom::fill(&mut key).ok()?;
        Some(Self { key, ended: Mutex::default() })
    }

    /// The header that begins a session.
    pub fn begin(&self, digest: &Digest, secure: bool) -> String {
        let mut nonce = [0; 8];
        // Without it two sessions of one second would share their forms, and nothing else.
        let _ = getrandom::fill(&mut nonce);
        let text = format!("{}.{}.{}", hex::encode(digest), seconds(), hex::encode(nonce));
        let mac = self.mac("session", &text);
        let secure = if secure { "; Secure" } else { "" };
        format!(
            "{COOKIE}={text}.{mac}; Path=/console; HttpOnly; SameSite=Strict; Max-Age={LIFETIME_S}{secure}"
        )
    }

    /// Ends it, here and by a header.
    pub fn end(&self, session: &Session) -> String {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let now = seconds();
        ended.one_by_one.retain(|_, since| now.saturating_sub(*since) <= LIFETIME_S);
        if ended.one_by_one.len() >= ENDED_MAX {
            ended.one_by_one.clear();
            ended.until = Some(now);
        }
        ended.one_by_one.insert(session.csrf.clone(), session.since);
        format!("{COOKIE}=; Path=/console; HttpOnly; SameSite=Strict; Max-Age=0")
    }

    /// The session of a request, if it has one that is good.
    pub fn find(&self, headers: &HeaderMap) -> Option<Session> {
        let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        let value = cookies
            .flat_map(|line| line.split(';'))
            .find_map(|pair| pair.trim().strip_prefix(COOKIE)?.strip_prefix('='))?;
        let (text, mac) = value.rsplit_once('.')?;
        if !bool::from(self.mac("session", text).as_bytes().ct_eq(mac.as_bytes())) {
            return None;
        }
        let (digest, rest) = text.split_once('.')?;
        let (since, _) = rest.split_once('.')?;
        let since = since.parse().ok()?;
        let age = seconds().checked_sub(since)?;
        if age > LIFETIME_S {
            return None;
        }
        let mut bytes = [0; 32];
        hex::decode_to_slice(digest, &mut bytes).ok()?;
        let session = Session { digest: bytes, csrf: self.mac("csrf", value), since };
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let over =
            ended.until.is_some_and(|until| since <= until) || ended.one_by_one.contains_key(&session.csrf);
        (!over).then_some(session)
    }

    fn mac(&self, what: &str, text: &str) -> String {
        // Cannot fail: HMAC takes keys of any length.
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&self.key) else { return String::new() };
        mac.update(what.as_bytes());
        mac.update(&[0]);
        mac.update(text.as_bytes());
        BASE64_URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes())
    }
}

impl Session {
    /// Does a form belong to this session?
    pub fn check(&self, csrf: &str) -> Result<(), Problem> {
        if bool::from(self.csrf.as_bytes().ct_eq(csrf.as_bytes())) && !self.csrf.is_empty() {
            return Ok(());
        }
        Err(foreign())
    }
}

fn foreign() -> Problem {
    let detail =
        "the form does not come from this console, or is older than the session: open the page again";
    Problem::new(StatusCode::FORBIDDEN, "csrf", detail)
}

/// Refuses what a browser says comes from somewhere else.
pub fn own_site(headers: &HeaderMap) -> Result<(), Problem> {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("?").to_owned());
    if text("sec-fetch-site").is_some_and(|site| site != "same-origin" && site != "none") {
        return Err(foreign());
    }
    match (text("origin"), text("host")) {
        (None, _) => Ok(()),
        (Some(origin), Some(host)) if origin.split_once("://").is_some_and(|(_, at)| at == host) => Ok(()),
        (Some(_), _) => Err(foreign()),
    }
}

/// Is the page asked for by an address of this machine? A name that leads here may belong to a
/// stranger's page.
pub fn on_loopback(headers: &HeaderMap) -> bool {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let name = host.rsplit_once(':').map_or(host, |(name, port)| {
        if port.bytes().all(|byte| byte.is_ascii_digit()) { name } else { host }
    });
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|addr| addr.is_loopback())
}

fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&str, &str)| {
            (name.parse::<axum::http::HeaderName>().unwrap(), value.parse().unwrap())
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn a_session_is_found_only_as_it_was_signed() {
        let sessions = Sessions::new().unwrap();
        let begun = sessions.begin(&[7; 32], false);
        assert!(begun.contains("HttpOnly") && begun.contains("SameSite=Strict"));
        let cookie = begun.split(';').next().unwrap();
        let found = sessions.find(&headers(&[("cookie", &format!("a=b; {cookie}"))])).unwrap();
        assert_eq!(found.digest, [7; 32]);
        assert!(found.check(&found.csrf).is_ok());
        for wrong in ["", "x", cookie] {
            assert_eq!(found.check(wrong).unwrap_err().code(), "csrf");
        }
        // Another's end is not its end; its own is.
        let second = sessions.begin(&[7; 32], false);
        let second = headers(&[("cookie", second.split(';').next().unwrap())]);
        sessions.end(&sessions.find(&second).unwrap());
        assert!(sessions.find(&second).is_none());
        assert!(sessions.find(&headers(&[("cookie", cookie)])).is_some());
        // Another process, another token's digest, another time.
        assert!(Sessions::new().unwrap().find(&headers(&[("cookie", cookie)])).is_none());
        let other = cookie.replacen("07", "08", 1);
        assert!(sessions.find(&headers(&[("cookie", &other)])).is_none());
        let old = cookie.replacen(".1", ".0", 1);
        assert!(sessions.find(&headers(&[("cookie", &old)])).is_none());
        assert!(sessions.find(&HeaderMap::new()).is_none());
    }

    #[test]
    fn what_comes_from_another_site_is_refused() {
        for (pairs, good) in [
            (&[("host", "h:1")][..], true),
            (&[("host", "h:1"), ("origin", "http://h:1"), ("sec-fetch-site", "same-origin")], true),
            (&[("host", "h:1"), ("origin", "http://evil")], false),
            (&[("host", "h:1"), ("origin", "null")], false),
            (&[("host", "h:1"), ("sec-fetch-site", "cross-site")], false),
            (&[("host", "h:1"), ("sec-fetch-site", "same-site")], false),
        ] {
            assert_eq!(own_site(&headers(pairs)).is_ok(), good, "{pairs:?}");
        }
        for (host, good) in [
            ("127.0.0.1:7070", true),
            ("[::1]:7070", true),
            ("localhost", true),
            ("evil.example:7070", false),
            ("10.0.0.1", false),
        ] {
            assert_eq!(on_loopback(&headers(&[("host", host)])), good, "{host}");
        }
    }
}
