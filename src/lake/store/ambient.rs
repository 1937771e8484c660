//! What the surroundings say about S3: environment variables and the files of AWS profiles.

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;

/// Environment variables by name, and how files are read. A value of its own, so that tests bring their own.
pub(super) struct Ambient {
    variables: HashMap<String, String>,
    files: HashMap<PathBuf, String>,
    of_process: bool,
}

/// The keys of one section of the profile files.
pub(super) type Profile = HashMap<String, String>;

impl Ambient {
    /// The environment of this process, and files as they are on disk.
    pub(super) fn of_process() -> Self {
        let variables = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .filter(|(name, _)| name.starts_with("AWS_") || name == "HOME")
            .collect();
        Self { variables, files: HashMap::new(), of_process: true }
    }

    #[cfg(test)]
    pub(super) fn made_up(variables: &[(&str, &str)], files: &[(&str, &str)]) -> Self {
        Self {
            variables: variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            files: files.iter().map(|(path, text)| (PathBuf::from(path), (*text).to_owned())).collect(),
            of_process: false,
        }
    }

    /// A variable that is set and not empty.
    pub(super) fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// The section `name` of the credentials file and of the config file, the former going first.
    pub(super) fn profile(&self, name: &str) -> Profile {
        let home = self.variable("HOME").map(PathBuf::from).unwrap_or_default();
        let place = |variable: &str, usual: &str| {
            self.variable(variable).map_or_else(|| home.join(".aws").join(usual), PathBuf::from)
        };
        let config = self.read(&place("AWS_CONFIG_FILE", "config"));
        let heading = if name == "default" { name.to_owned() } else { format!("profile {name}") };
        let mut profile = section(&config, &heading);
        profile.extend(section(&self.read(&place("AWS_SHARED_CREDENTIALS_FILE", "credentials")), name));
        profile
    }

    fn read(&self, path: &PathBuf) -> String {
        if self.of_process {
            return std::fs::read_to_string(path).unwrap_or_default();
        }
        self.files.get(path).cloned().unwrap_or_default()
    }
}

impl fmt::Debug for Ambient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ambient").finish_non_exhaustive()
    }
}

/// `key = value` lines under `[heading]`. Nested keys (indented lines) are left out.
fn section(text: &str, heading: &str) -> Profile {
    let mut found = Profile::new();
    let mut inside = false;
    for line in text.lines() {
        if line.starts_with([' ', '\t']) || line.trim_start().starts_with(['#', ';']) {
            continue;
        }
        let line = line.trim();
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
            inside = name.split_whitespace().eq(heading.split_whitespace());
        } else if inside && let Some((key, value)) = line.split_once('=') {
            found.insert(key.trim().to_ascii_lowercase(), value.trim().to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_are_read_from_both_files() {
        let ambient = Ambient::made_up(
            &[("HOME", "/home/u"), ("AWS_CONFIG_FILE", "/etc/aws.conf"), ("AWS_REGION", "")],
            &[
                ("/etc/aws.conf", "[default]\nregion = eu-west-1\n[profile  p]\nregion=eu-central-1\ns3 =\n  a = b\n"),
                ("/home/u/.aws/credentials", "# c\n[p]\naws_access_key_id = AK\nAWS_secret_access_key=S=K\n"),
            ],
        );
        let profile = ambient.profile("p");
        assert_eq!(profile.get("region").map(String::as_str), Some("eu-central-1"));
        assert_eq!(profile.get("aws_access_key_id").map(String::as_str), Some("AK"));
        assert_eq!(profile.get("aws_secret_access_key").map(String::as_str), Some("S=K"));
        assert_eq!(profile.get("a"), None);
        assert_eq!(ambient.profile("default").get("region").map(String::as_str), Some("eu-west-1"));
        assert!(ambient.profile("other").is_empty());
        assert_eq!(ambient.variable("AWS_REGION"), None);
    }
}
