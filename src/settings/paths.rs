//! The four folders of the program.

use std::path::PathBuf;

/// Where files go, by the platform's rules unless an environment variable says otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths {
    /// `config.toml` and themes; `DFLASH_CHAT_CONFIG`.
    pub config: PathBuf,
    /// Models and conversations; `DFLASH_CHAT_DATA`.
    pub data: PathBuf,
    /// What can be computed again; `DFLASH_CHAT_CACHE`.
    pub cache: PathBuf,
    /// Logs and input history; inside the data folder where `DFLASH_CHAT_DATA` is set or the
    /// platform has no such folder.
    pub state: PathBuf,
}

/// There is no home folder to derive the program's folders from.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot tell where to keep files: no home folder is known; set HOME, or DFLASH_CHAT_CONFIG, \
     DFLASH_CHAT_DATA and DFLASH_CHAT_CACHE"
)]
pub struct PathsError;

impl Paths {
    /// The folders of this person on this machine. Nothing is created.
    pub fn from_env() -> Result<Paths, PathsError> {
        let variable = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        Paths::new(
            directories::ProjectDirs::from("", "", "dflash-chat").as_ref(),
            variable("DFLASH_CHAT_CONFIG"),
            variable("DFLASH_CHAT_DATA"),
            variable("DFLASH_CHAT_CACHE"),
        )
    }

    /// The folder of saved conversations.
    pub fn sessions(&self) -> PathBuf {
        self.data.join("sessions")
    }

    fn new(
        platform: Option<&directories::ProjectDirs>,
        config: Option<PathBuf>,
        data: Option<PathBuf>,
        cache: Option<PathBuf>,
    ) -> Result<Paths, PathsError> {
        let state = match (&data, platform) {
            (Some(data), _) => data.join("state"),
            (None, Some(p)) => {
                p.state_dir().map_or_else(|| p.data_dir().join("state"), PathBuf::from)
            }
            (None, None) => return Err(PathsError),
        };
        let or = |given: Option<PathBuf>, default: Option<PathBuf>| given.or(default);
        Ok(Paths {
            config: or(config, platform.map(|p| p.config_dir().into())).ok_or(PathsError)?,
            data: or(data, platform.map(|p| p.data_dir().into())).ok_or(PathsError)?,
            cache: or(cache, platform.map(|p| p.cache_dir().into())).ok_or(PathsError)?,
            state,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_win_and_state_follows_data() {
        let all = |s: &str| Some(PathBuf::from(s));
        let paths = Paths::new(None, all("/c"), all("/d"), all("/x")).unwrap();
        assert_eq!(paths.config, PathBuf::from("/c"));
        assert_eq!(paths.data, PathBuf::from("/d"));
        assert_eq!(paths.cache, PathBuf::from("/x"));
        assert_eq!(paths.state, PathBuf::from("/d/state"));
    }

    #[test]
    fn without_a_home_the_message_names_the_variables() {
        let error = Paths::new(None, None, Some("/d".into()), None).unwrap_err();
        assert!(error.to_string().contains("DFLASH_CHAT_DATA"));
    }
}
