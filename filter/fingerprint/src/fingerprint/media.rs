//! Media type and content coding: whether a body is JSON that may be compared by meaning.

/// A media type in lower case without its parameters.
pub(super) fn media_type(content_type: &[u8]) -> Vec<u8> {
    let essence = content_type.split(|b| *b == b';').next().unwrap_or_default();
    essence.trim_ascii().to_ascii_lowercase()
}

/// A content coding in lower case; `identity` is none.
pub(super) fn content_coding(content_encoding: &[u8]) -> Vec<u8> {
    let coding = content_encoding.trim_ascii().to_ascii_lowercase();
    if coding == b"identity" { Vec::new() } else { coding }
}

/// `application/json` or `application/...+json`, in UTF-8 as far as it says.
pub(super) fn is_json(content_type: &[u8]) -> bool {
    let media_type = media_type(content_type);
    let Some(subtype) = media_type.strip_prefix(b"application/") else { return false };
    let json = subtype == b"json" || subtype.strip_suffix(b"+json").is_some_and(|name| !name.is_empty());
    json && content_type.split(|b| *b == b';').skip(1).all(is_utf8_or_no_charset)
}

fn is_utf8_or_no_charset(parameter: &[u8]) -> bool {
    let mut halves = parameter.splitn(2, |b| *b == b'=');
    let name = halves.next().unwrap_or_default().trim_ascii();
    if !name.eq_ignore_ascii_case(b"charset") {
        return true;
    }
    let value = halves.next().unwrap_or_default().trim_ascii();
    let value = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value);
    value.eq_ignore_ascii_case(b"utf-8")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_media_types_are_known() {
        for json in [
            "application/json",
            "Application/JSON; charset=UTF-8",
            "application/json;charset=\"utf-8\"",
            "application/vnd.api+json",
            "application/merge-patch+json; a=b",
        ] {
            assert!(is_json(json.as_bytes()), "{json}");
        }
        for other in [
            "",
            "text/json",
            "application/jsonl",
            "application/+json",
            "application/json; charset=utf-16",
            "application/json; charset=utf-8; charset=latin1",
            "application/x-www-form-urlencoded",
            "text/plain; application/json",
        ] {
            assert!(!is_json(other.as_bytes()), "{other}");
        }
    }

    #[test]
    fn parameters_and_case_are_not_compared() {
        assert_eq!(media_type(b" Text/Plain ; charset=x"), b"text/plain");
        assert_eq!(content_coding(b" Identity "), b"");
        assert_eq!(content_coding(b"GZIP"), b"gzip");
    }
}
