//! A path, as it is or by its template.

use super::options::PathTemplate;
use crate::digest::PartsDigest;

mod tag {
    pub const WHOLE: u8 = 16;
    pub const TEMPLATE: u8 = 17;
    pub const VARIABLE: u8 = 18;
}

/// Adds a path to a digest. One that does not match the template is taken as it is.
pub(super) fn add(template: Option<&PathTemplate>, path: &[u8], digest: &mut PartsDigest) {
    let matched = template.and_then(|template| Some((template, variables(&template.template, path)?)));
    let Some((template, found)) = matched else {
        digest.part(tag::WHOLE, path);
        return;
    };
    digest.part(tag::TEMPLATE, template.template.as_bytes());
    for (name, value) in found {
        if template.variables.iter().any(|chosen| chosen == name) {
            digest.part(tag::VARIABLE, name.as_bytes()).part(tag::VARIABLE, value);
        }
    }
}

/// One variable of a path, as it is written there.
pub fn variable<'a>(template: &'a str, path: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let path = path.split(|b| *b == b'?').next().unwrap_or_default();
    variables(template, path)?.into_iter().find(|(found, _)| *found == name).map(|(_, value)| value)
}

/// The variables of a path in the order of the template, if it matches segment by segment.
fn variables<'a>(template: &'a str, path: &'a [u8]) -> Option<Vec<(&'a str, &'a [u8])>> {
    let mut found = Vec::new();
    let mut segments = path.split(|b| *b == b'/');
    for part in template.split('/') {
        let segment = segments.next()?;
        match part.strip_prefix('{').and_then(|part| part.strip_suffix('}')) {
            Some(name) => found.push((name, segment)),
            None if part.as_bytes() == segment => {}
            None => return None,
        }
    }
    segments.next().is_none().then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(path: &str) -> [u8; 32] {
        let template =
            PathTemplate { template: "/v1/{tenant}/orders/{id}".into(), variables: vec!["id".into()] };
        let mut digest = PartsDigest::new("test");
        add(Some(&template), path.as_bytes(), &mut digest);
        digest.finish()
    }

    #[test]
    fn only_chosen_variables_are_compared() {
        assert_eq!(of("/v1/a/orders/7"), of("/v1/b/orders/7"));
        assert_ne!(of("/v1/a/orders/7"), of("/v1/a/orders/8"));
    }

    #[test]
    fn a_path_beside_the_template_is_compared_as_it_is() {
        assert_ne!(of("/v2/a/orders/7"), of("/v2/b/orders/7"));
        assert_ne!(of("/v1/a/orders/7/x"), of("/v1/b/orders/7/x"));
        assert_ne!(of("/v1/a/orders"), of("/v1/b/orders"));
    }
}
