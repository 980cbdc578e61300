//! What the host knows about a request. The adapter implements it; tests use a plain map.

/// A property as the host gave it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Property {
    /// The host says that there is no such property.
    Absent,
    /// There is one, but the host can't hand it over (a null inside, for example).
    Unreadable,
    /// Its bytes, in the host's encoding (see [`crate::host_value`]).
    Bytes(Vec<u8>),
}

/// Read access to a request's headers and to what the proxy found out about it.
pub trait Facts {
    /// A property by its path, such as `["metadata", "filter_metadata", "ns", "key"]`.
    fn property(&self, path: &[&str]) -> Property;
    /// All lines of a request header, in order; the name is lower case.
    fn header(&self, name: &str) -> Vec<Vec<u8>>;
}
