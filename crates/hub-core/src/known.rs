//! What is known about an object: unknown is not absent.

/// What is known about an object that a decision depends on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Known<T> {
    /// Not read yet, or not readable.
    #[default]
    Unknown,
    Absent,
    Present(T),
}

impl<T> Known<T> {
    /// The object, if it is known to exist.
    pub fn present(&self) -> Option<&T> {
        match self {
            Self::Present(object) => Some(object),
            Self::Unknown | Self::Absent => None,
        }
    }

    /// What is known about a part of the object.
    pub fn map<U>(self, part: impl FnOnce(T) -> U) -> Known<U> {
        match self {
            Self::Unknown => Known::Unknown,
            Self::Absent => Known::Absent,
            Self::Present(object) => Known::Present(part(object)),
        }
    }
}
