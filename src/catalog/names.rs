//! Names that come from outside and end in paths, addresses or command lines.

/// A hub repository at a revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepoRef {
    /// `organisation/name`
    pub id: String,
    /// A branch, tag or commit; `main` unless asked.
    pub revision: String,
}

impl RepoRef {
    /// Read `organisation/name` or `organisation/name@revision`.
    pub fn parse(text: &str) -> Result<RepoRef, String> {
        let (id, revision) = text.split_once('@').unwrap_or((text, "main"));
        let parts: Vec<&str> = id.split('/').collect();
        let [organisation, name] = parts.as_slice() else {
            return Err(format!(
                "`{text}` is not a repository; write organisation/name[@revision]"
            ));
        };
        check_word(organisation)?;
        check_word(name)?;
        for part in revision.split('/') {
            check_word(part)?;
        }
        Ok(RepoRef { id: id.into(), revision: revision.into() })
    }

    /// The name of its folder among our models.
    pub fn folder(&self) -> String {
        let id = self.id.replace('/', "--");
        match self.revision.as_str() {
            "main" => id,
            revision => format!("{id}@{}", revision.replace('/', "--")),
        }
    }
}

impl std::fmt::Display for RepoRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.revision.as_str() {
            "main" => f.write_str(&self.id),
            revision => write!(f, "{}@{revision}", self.id),
        }
    }
}

/// Refuse what is not one plain path component: separators, `..`, hidden or empty names, control
/// characters, drive letters.
pub fn check_file_name(name: &str) -> Result<(), String> {
    let plain = !name.is_empty()
        && name.len() <= 200
        && !name.starts_with('.')
        && !name.contains("..")
        && !name.chars().any(|c| c.is_control() || matches!(c, '/' | '\\' | ':'));
    if plain { Ok(()) } else { Err(format!("{name:?} is not a plain file name")) }
}

/// Refuse what is not a word of letters, digits, `.`, `_`, `-`, `+` that begins with a letter,
/// a digit or `_`: such words are safe in addresses and on command lines.
pub fn check_word(word: &str) -> Result<(), String> {
    let ok = word.len() <= 128
        && !word.contains("..")
        && word.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
        && word.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '+'));
    if ok { Ok(()) } else { Err(format!("{word:?} is not a valid name")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_tell_revisions_apart() {
        assert_eq!(RepoRef::parse("a/b").unwrap().folder(), "a--b");
        assert_eq!(RepoRef::parse("a/b@refs/pr/1").unwrap().folder(), "a--b@refs--pr--1");
        assert_eq!(RepoRef::parse("a/b@v1").unwrap().to_string(), "a/b@v1");
    }
}
