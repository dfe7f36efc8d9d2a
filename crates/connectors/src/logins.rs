//! User and password in URLs.

use url::Url;

/// Returns user and password of a URL; an empty password if it has none.
pub(crate) fn url_login(url: &Url) -> Option<(String, String)> {
    let user = percent_decode(url.username());
    (!user.is_empty()).then(|| (user, url.password().map(percent_decode).unwrap_or_default()))
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
