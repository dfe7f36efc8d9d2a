//! Credentials of AWS in a file of profiles, `~/.aws/credentials`.

use std::path::PathBuf;

/// Keys of a profile.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Profile {
    pub access_key: String,
    pub secret_key: String,
    pub token: Option<String>,
}

/// Returns the file of profiles and the name of the profile, as AWS's programs find them.
pub(super) fn location() -> Option<(PathBuf, String)> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let file = variable("AWS_SHARED_CREDENTIALS_FILE").map(PathBuf::from);
    let file = file.or_else(|| Some(PathBuf::from(variable("HOME")?).join(".aws/credentials")))?;
    Some((file, variable("AWS_PROFILE").unwrap_or_else(|| "default".to_owned())))
}

/// Returns the keys of a profile; `None` if the text has none of this name with both keys.
pub(super) fn parse(text: &str, name: &str) -> Option<Profile> {
    let mut profile = Profile::default();
    let mut is_inside = false;
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';'])) {
        if let Some(section) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            is_inside = section.trim() == name;
        } else if let Some((key, value)) = line.split_once('=').filter(|_| is_inside) {
            let value = value.trim().to_owned();
            match key.trim() {
                "aws_access_key_id" => profile.access_key = value,
                "aws_secret_access_key" => profile.secret_key = value,
                "aws_session_token" => profile.token = Some(value),
                _ => {}
            }
        }
    }
    (!profile.access_key.is_empty() && !profile.secret_key.is_empty()).then_some(profile)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_are_found_by_name() {
        let text = "# keys\n[default]\naws_access_key_id=a\naws_secret_access_key = b=c\n\n[ half ]\n\
                    aws_access_key_id=x\n[other]\naws_access_key_id = d\naws_secret_access_key=e\naws_session_token=f\n";
        let keys = |name: &str| {
            parse(text, name).map(|profile| (profile.access_key, profile.secret_key, profile.token))
        };
        assert_eq!(keys("default"), Some(("a".into(), "b=c".into(), None)));
        assert_eq!(keys("other"), Some(("d".into(), "e".into(), Some("f".into()))));
        assert_eq!((keys("half"), keys("missing")), (None, None));
    }
}
