//! Answers of the filter itself in an operator's own words.
//!
//! A template is text with placeholders such as `{code}`. A brace that does not enclose a name of
//! lower-case letters and underscores stands for itself, so JSON needs no escapes; a name that is
//! no placeholder is an error when the configuration is loaded. Where the content type is JSON,
//! what is put in is escaped for a string of JSON, and the template itself must be JSON.
//!
//! Nothing that a client sent can get in: problems hold none of it.

use crate::problem::Problem;

/// A parsed template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorTemplate {
    content_type: String,
    json: bool,
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Type,
    Title,
    Status,
    Detail,
    Code,
    RetryAfter,
}

/// Why a text is no template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// No media type.
    #[error("{0} is no media type")]
    ContentType(String),
    /// A name in braces that is no placeholder.
    #[error("{0} is no placeholder")]
    Placeholder(String),
    /// The content type is JSON and the body is not, even with all placeholders filled.
    #[error("not JSON")]
    NotJson,
    /// Longer than [`BODY_LEN_MAX`].
    #[error("{0} bytes are too long")]
    TooLong(usize),
}

/// Longest template: each answer is made in the proxy's memory.
pub(crate) const BODY_LEN_MAX: usize = 16_384;

impl ErrorTemplate {
    /// All placeholders.
    pub const PLACEHOLDERS: [&str; 6] =
        ["{type}", "{title}", "{status}", "{detail}", "{code}", "{retry_after}"];

    /// Parses a body of a content type.
    pub fn parse(content_type: &str, body: &str) -> Result<Self, TemplateError> {
        if body.len() > BODY_LEN_MAX {
            return Err(TemplateError::TooLong(body.len()));
        }
        let media_type = media_type(content_type)
            .ok_or_else(|| TemplateError::ContentType(format!("{content_type:?}")))?;
        let json = media_type == "application/json" || media_type.ends_with("+json");
        let template = Self { content_type: content_type.to_owned(), json, parts: parts(body)? };
        let sample = Problem::new(crate::problem::ProblemKind::InProgress, "\"").retry_after_ms(1_000);
        if json && serde_json::from_slice::<serde::de::IgnoredAny>(&template.body(&sample)).is_err() {
            return Err(TemplateError::NotJson);
        }
        Ok(template)
    }

    /// Content type of the answers.
    pub fn content_type(&self) -> &str {
        &self.content_type
    }

    /// The body that tells of a problem.
    pub fn body(&self, problem: &Problem) -> Vec<u8> {
        let kind = problem.kind;
        let body = self.parts.iter().fold(String::new(), |mut body, part| {
            match part {
                Part::Text(text) => body.push_str(text),
                Part::Type => self.put(kind.type_uri(), &mut body),
                Part::Title => self.put(kind.title(), &mut body),
                Part::Status => body.push_str(&kind.status().to_string()),
                Part::Detail => self.put(&problem.detail, &mut body),
                Part::Code => self.put(kind.code(), &mut body),
                Part::RetryAfter => body.push_str(&problem.retry_after_s.unwrap_or(0).to_string()),
            }
            body
        });
        body.into_bytes()
    }

    fn put(&self, text: &str, body: &mut String) {
        if !self.json {
            body.push_str(text);
            return;
        }
        // Text always serialises, to itself in quotes.
        let quoted = serde_json::to_string(text).unwrap_or_default();
        body.push_str(quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or_default());
    }
}

/// The part before parameters, lower case.
fn media_type(content_type: &str) -> Option<String> {
    let printable = content_type.bytes().all(|b| (0x20..0x7f).contains(&b)) && content_type.len() <= 255;
    let media_type = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let (kind, subtype) = media_type.split_once('/')?;
    let token = |text: &str| crate::capture::is_token(text.as_bytes());
    (printable && token(kind) && token(subtype)).then_some(media_type)
}

fn parts(body: &str) -> Result<Vec<Part>, TemplateError> {
    let (mut parts, mut text, mut rest) = (Vec::new(), String::new(), body);
    while let Some((before, after)) = rest.split_once('{') {
        text.push_str(before);
        let name = after.split_once('}').map(|(name, _)| name).filter(|name| is_name(name));
        let Some(name) = name else {
            text.push('{');
            rest = after;
            continue;
        };
        let part = match name {
            "type" => Part::Type,
            "title" => Part::Title,
            "status" => Part::Status,
            "detail" => Part::Detail,
            "code" => Part::Code,
            "retry_after" => Part::RetryAfter,
            _ => return Err(TemplateError::Placeholder(format!("{{{name}}}"))),
        };
        parts.extend([Part::Text(core::mem::take(&mut text)), part]);
        rest = after.get(name.len().saturating_add(1)..).unwrap_or_default();
    }
    text.push_str(rest);
    parts.push(Part::Text(text));
    Ok(parts)
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::ProblemKind;
    use proptest::prelude::*;

    fn render(content_type: &str, body: &str) -> String {
        let template = ErrorTemplate::parse(content_type, body).unwrap();
        let problem = Problem::new(ProblemKind::InProgress, "say \"again\"\n").retry_after_ms(1_500);
        String::from_utf8(template.body(&problem)).unwrap()
    }

    #[test]
    fn every_placeholder_is_filled_and_other_braces_stand_for_themselves() {
        assert_eq!(
            render(
                "text/plain; charset=utf-8",
                "{{code}} {title}|{status}|{type}|{detail}|{retry_after}|{ }{}{Code}{"
            ),
            "{in_progress} A request with this key is in progress|409|urn:fencepost:problem:in_progress|say \"again\"\n|2|{ }{}{Code}{"
        );
    }

    #[test]
    fn json_stays_json_whatever_is_put_in() {
        let body = r#"{"error": {"code": "{code}", "message": "{title}: {detail}"}, "status": {status}}"#;
        for content_type in ["application/json", "Application/Problem+JSON; charset=utf-8"] {
            let value: serde_json::Value = serde_json::from_str(&render(content_type, body)).unwrap();
            assert_eq!(value["error"]["message"], "A request with this key is in progress: say \"again\"\n");
            assert_eq!(value["status"], 409);
        }
        for bad in ["{code}", r#"{"a": {code}}"#, r#"{"a": "{code}""#] {
            assert_eq!(ErrorTemplate::parse("application/json", bad), Err(TemplateError::NotJson), "{bad}");
        }
    }

    #[test]
    fn what_is_no_placeholder_or_no_media_type_is_refused() {
        let refused = |content_type, body| ErrorTemplate::parse(content_type, body).unwrap_err();
        assert_eq!(refused("text/plain", "{key}"), TemplateError::Placeholder("{key}".into()));
        for bad in ["", "text", "text/", "/x", "a b/c", "text/plain\r\nx: y"] {
            assert!(matches!(refused(bad, ""), TemplateError::ContentType(_)), "{bad}");
        }
        assert_eq!(refused("text/plain", &"x".repeat(16_385)), TemplateError::TooLong(16_385));
    }

    proptest! {
        #[test]
        fn any_text_is_a_template_or_an_error(body in "[{}a-z_\"é ]{0,40}") {
            if let Ok(template) = ErrorTemplate::parse("text/plain", &body) {
                template.body(&Problem::new(ProblemKind::KeyMissing, ""));
            }
        }
    }
}
