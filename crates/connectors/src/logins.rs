//! User and password, in URLs and in options.

use tidemill_connect::{OptionError, Options};
use url::Url;

/// Returns user and password of a URL; an empty password if it has none.
pub(crate) fn url_login(url: &Url) -> Option<(String, String)> {
    let user = percent_decode(url.username());
    (!user.is_empty()).then(|| (user, url.password().map(percent_decode).unwrap_or_default()))
}

/// Returns user and password of two options.
///
/// Errors: a password without a user.
pub(crate) fn login_of(
    options: &Options,
    user: &'static str,
    password: &'static str,
) -> Result<Option<(String, String)>, OptionError> {
    match (options.get(user), options.get(password)) {
        (Some(user), password) => Ok(Some((user.to_owned(), password.unwrap_or_default().to_owned()))),
        (None, Some(_)) => Err(OptionError::option(password, format!("a password needs `{user}`"))),
        (None, None) => Ok(None),
    }
}

/// Decodes `%20` and the like.
pub(crate) fn percent_decode(text: &str) -> String {
    // the parser of forms also reads `+` as a space and `&` as an end, which they are not in a URL's user
    let text = text.replace('+', "%2B").replace('&', "%26").replace('=', "%3D");
    url::form_urlencoded::parse(text.as_bytes()).map(|(name, _)| name.into_owned()).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_signs_are_decoded() {
        let url = Url::parse("amqp://a%20b+c%26d:p%40=s&s@host").unwrap();
        assert_eq!(url_login(&url), Some(("a b+c&d".to_owned(), "p@=s&s".to_owned())));
        assert_eq!(url_login(&Url::parse("amqp://host").unwrap()), None);
    }
}
