//! What all HTTP clients have: TLS, proxies, credentials, timeouts.

use std::path::Path;
use std::time::{Duration, Instant};

use http::{Method, StatusCode, header};
use reqwest::redirect::Policy;
use reqwest::{Certificate, Client, ClientBuilder, Identity, Proxy, RequestBuilder, Response};
use tidemill_connect::{OptionError, OptionSpec, Options};
use tidemill_types::{Error, Result};
use tokio::sync::Mutex;
use url::Url;

use super::options::Settings;
use crate::shortened::shortened;
use crate::tls::OptionFile;

/// Default timeout for connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// Time before its expiry at which an access token is replaced.
const TOKEN_MARGIN: Duration = Duration::from_secs(10);
/// Bytes of an answer that an error shows.
const SHOWN_BYTES: usize = 300;
/// Most redirects of a source that are followed.
const REDIRECTS_MAX: usize = 10;

/// Begins a client with what all have. Redirects are not followed.
pub(crate) fn client_builder() -> ClientBuilder {
    Client::builder()
        .use_rustls_tls()
        .connect_timeout(CONNECT_TIMEOUT)
        .redirect(Policy::none())
        .user_agent("tidemill")
}

/// Lets a client trust the authorities of a file besides those of the system.
///
/// Errors: the file has no certificates, or one that cannot be read.
pub(crate) fn trust(mut builder: ClientBuilder, file: &OptionFile) -> Result<ClientBuilder, OptionError> {
    for certificate in file.certificates()? {
        let certificate = Certificate::from_der(&certificate)
            .map_err(|e| file.wrong(format!("a certificate cannot be read: {}", describe(&e))))?;
        builder = builder.add_root_certificate(certificate);
    }
    Ok(builder)
}

/// Creates the client.
///
/// Errors: settings that make no sense together.
pub(crate) fn build(builder: ClientBuilder) -> Result<Client, OptionError> {
    builder
        .build()
        .map_err(|e| OptionError::connector(format!("the HTTP client cannot be made: {}", describe(&e))))
}

/// Creates a client of a service with an interface of its own, which needs none of [`CLIENT_OPTIONS`].
pub(crate) fn plain_client(answer_timeout: Duration) -> Result<Client, OptionError> {
    build(client_builder().timeout(answer_timeout))
}

/// Options of every client, besides those for the time to wait.
pub(crate) const CLIENT_OPTIONS: &[OptionSpec] = &[
    OptionSpec::text("basic.auth.username", "User name of basic authentication."),
    OptionSpec::text("basic.auth.password", "Password of basic authentication.").secret(),
    OptionSpec::text("consumer.key", "Client id of OAuth 2.0, sent as user name to `token.url`."),
    OptionSpec::text("consumer.secret", "Client secret of OAuth 2.0.").secret(),
    OptionSpec::text("body.consumer.key", "Client id of OAuth 2.0, sent in the body."),
    OptionSpec::text("body.consumer.secret", "Client secret of OAuth 2.0, sent in the body.").secret(),
    OptionSpec::text("token.url", "Where OAuth 2.0 access tokens are requested."),
    OptionSpec::text("refresh.token", "Refresh token of OAuth 2.0.").secret(),
    OptionSpec::text("oauth.username", "User name of OAuth 2.0; without it the client itself is authorized."),
    OptionSpec::text("oauth.password", "Password of OAuth 2.0.").secret(),
    OptionSpec::text("oauth.scope", "Scope of OAuth 2.0."),
    OptionSpec::text(
        "https.truststore.file",
        "PEM file with authorities that are trusted besides the usual.",
    ),
    OptionSpec::text("https.truststore.password", "Accepted without effect; certificates are public.")
        .secret(),
    OptionSpec::text("https.keystore.file", "PEM file with the client's certificate, and its key."),
    OptionSpec::text("https.keystore.key.file", "PEM file with the key, if it is not with the certificate."),
    OptionSpec::text("https.keystore.password", "Accepted without effect; PEM keys are not encrypted.")
        .secret(),
    OptionSpec::text("https.keystore.key.password", "Accepted without effect; PEM keys are not encrypted.")
        .secret(),
    OptionSpec::flag("ssl.verification.disabled", "false", "Whether any server certificate is taken."),
    OptionSpec::flag("hostname.verification.enabled", "true", "Whether the certificate must name the host."),
    OptionSpec::text("ssl.protocol", "Accepted without effect; TLS 1.2 and 1.3 are spoken."),
    OptionSpec::text("tls.store.type", "Accepted without effect; files are PEM files."),
    OptionSpec::text("ssl.configurations", "Accepted without effect; TLS 1.2 and 1.3 with current ciphers."),
    OptionSpec::text("parameters", "Accepted without effect; the old name of `ssl.configurations`."),
    OptionSpec::text("proxy.host", "Host of an HTTP proxy; environment variables are not read."),
    OptionSpec::integer("proxy.port", 1, 65535, "Port of the proxy.").default("8080"),
    OptionSpec::text("proxy.username", "User name at the proxy."),
    OptionSpec::text("proxy.password", "Password at the proxy.").secret(),
    OptionSpec::text(
        "client.bootstrap.configurations",
        "`'client.bootstrap.connect.timeout:15000'` in milliseconds and `'client.bootstrap.socket.timeout:15'` in \
         seconds; other settings have no effect.",
    ),
    OptionSpec::flag("chunk.disabled", "false", "Accepted without effect; bodies have a length."),
    OptionSpec::integer("min.pool.idle.connections", 0, 100_000, "Accepted without effect."),
    OptionSpec::integer("max.pool.idle.connections", 0, 100_000, "Accepted without effect."),
    OptionSpec::integer(
        "executor.service.threads",
        1,
        100_000,
        "Accepted without effect; threads are shared.",
    ),
    OptionSpec::duration("min.evictable.idle.time", "Accepted without effect."),
    OptionSpec::duration("time.between.eviction.runs", "Accepted without effect."),
    OptionSpec::duration("max.wait.time", "Accepted without effect."),
    OptionSpec::flag("test.on.borrow", "true", "Accepted without effect."),
    OptionSpec::flag("test.while.idle", "true", "Accepted without effect."),
    OptionSpec::integer("exhausted.action", 0, 2, "Accepted without effect."),
];

/// Option for the maximum time a client waits for data, unless `client.bootstrap.configurations` sets another
/// one.
pub(crate) const IDLE_TIMEOUT_OPTIONS: &[OptionSpec] =
    &[OptionSpec::duration("socket.idle.timeout", "How long the other side may send nothing.")
        .default("60000")];

const BOOTSTRAP_SETTINGS: &[&str] = &[
    "client.bootstrap.connect.timeout",
    "client.bootstrap.socket.timeout",
    "client.bootstrap.socket.reuse",
    "client.bootstrap.nodelay",
    "client.bootstrap.keepalive",
    "client.bootstrap.sendbuffersize",
    "client.bootstrap.recievebuffersize",
];

/// A client with its credentials.
pub(crate) struct HttpClient {
    client: Client,
    credentials: HttpCredentials,
}

enum HttpCredentials {
    None,
    Basic { user: String, password: String },
    OAuth(Box<OAuth>),
}

/// OAuth 2.0 with the grant that the options name.
struct OAuth {
    token_url: String,
    id: String,
    secret: String,
    /// True if id and secret are sent in the body.
    in_body: bool,
    scope: Option<String>,
    user: Option<(String, String)>,
    tokens: Mutex<Tokens>,
}

#[derive(Default)]
struct Tokens {
    refresh: Option<String>,
    access: Option<(String, Option<Instant>)>,
}

impl HttpClient {
    /// Creates a client. Relative paths start at `dir`; `follows` tells whether redirects are followed.
    ///
    /// Errors: options that make no sense together, unusable PEM files.
    pub(crate) fn of(options: &Options, dir: &Path, follows: bool) -> Result<Self, OptionError> {
        let settings = Settings::parse(options, "client.bootstrap.configurations", BOOTSTRAP_SETTINGS)?;
        let connect_timeout = settings.number("client.bootstrap.connect.timeout")?;
        let read_timeout = match settings.number("client.bootstrap.socket.timeout")? {
            Some(seconds) => Some(Duration::from_secs(seconds)),
            None => options.duration("socket.idle.timeout"),
        };
        let mut builder = client_builder()
            .connect_timeout(connect_timeout.map_or(CONNECT_TIMEOUT, Duration::from_millis))
            .redirect(if follows { Policy::limited(REDIRECTS_MAX) } else { Policy::none() })
            .tcp_keepalive(Duration::from_secs(60))
            .no_proxy();
        if let Some(timeout) = read_timeout.filter(|timeout| !timeout.is_zero()) {
            builder = builder.read_timeout(timeout);
        }
        if let Some(host) = options.get("proxy.host") {
            let port = options.integer("proxy.port").unwrap_or(8080);
            let proxy = Proxy::all(format!("http://{host}:{port}"));
            let proxy =
                proxy.map_err(|_| OptionError::option("proxy.host", format!("`{host}` is no host")))?;
            builder = builder.proxy(match (options.get("proxy.username"), options.get("proxy.password")) {
                (Some(user), password) => proxy.basic_auth(user, password.unwrap_or_default()),
                _ => proxy,
            });
        }
        if let Some(authorities) = OptionFile::read(options, "https.truststore.file", dir)? {
            builder = trust(builder, &authorities)?;
        }
        if let Some(certificate) = OptionFile::read(options, "https.keystore.file", dir)? {
            let key = OptionFile::read(options, "https.keystore.key.file", dir)?;
            // finds missing parts with a clearer word
            certificate.certificates()?;
            key.as_ref().unwrap_or(&certificate).key()?;
            let mut pem = certificate.pem.bytes.clone();
            pem.push(b'\n');
            pem.extend(key.map_or(vec![], |key| key.pem.bytes));
            let wrong = |e: reqwest::Error| OptionError::option("https.keystore.file", e.to_string());
            builder = builder.identity(Identity::from_pem(&pem).map_err(wrong)?);
        }
        builder = builder
            .danger_accept_invalid_certs(options.flag("ssl.verification.disabled"))
            .danger_accept_invalid_hostnames(!options.flag("hostname.verification.enabled"));
        Ok(Self { client: build(builder)?, credentials: HttpCredentials::of(options)? })
    }

    /// Starts a request.
    pub(crate) fn request(&self, method: Method, url: Url) -> RequestBuilder {
        self.client.request(method, url)
    }

    /// Sends a request with credentials. After a 401 a new access token is tried once.
    ///
    /// Errors: `Unavailable` if the server does not answer, `Invalid` if the request cannot be made.
    pub(crate) async fn send(&self, request: RequestBuilder, url: &Url) -> Result<Response> {
        let failed = |e: &reqwest::Error| match e.is_builder() {
            true => Error::invalid(format!("{}: {}", shown_url(url), describe(e))),
            false => Error::unavailable(format!("no answer from {}: {}", shown_url(url), describe(e))),
        };
        let oauth = match &self.credentials {
            HttpCredentials::None => return request.send().await.map_err(|e| failed(&e)),
            HttpCredentials::Basic { user, password } => {
                return request.basic_auth(user, Some(password)).send().await.map_err(|e| failed(&e));
            }
            HttpCredentials::OAuth(oauth) => oauth,
        };
        let again = request.try_clone();
        let token = oauth.access_token(&self.client, None).await?;
        let response = request.bearer_auth(&token).send().await.map_err(|e| failed(&e))?;
        match again {
            Some(again) if response.status() == StatusCode::UNAUTHORIZED => {
                let token = oauth.access_token(&self.client, Some(&token)).await?;
                again.bearer_auth(token).send().await.map_err(|e| failed(&e))
            }
            _ => Ok(response),
        }
    }
}

impl HttpCredentials {
    fn of(options: &Options) -> Result<Self, OptionError> {
        let needs = |option: &str, other: &str| {
            Err(OptionError::option(option, format!("the option `{other}` is missing")))
        };
        match (options.get("basic.auth.username"), options.get("basic.auth.password")) {
            (Some(user), Some(password)) => {
                return Ok(Self::Basic { user: user.into(), password: password.into() });
            }
            (Some(_), None) => return needs("basic.auth.username", "basic.auth.password"),
            (None, Some(_)) => return needs("basic.auth.password", "basic.auth.username"),
            (None, None) => {}
        }
        let header = (options.get("consumer.key"), options.get("consumer.secret"));
        let body = (options.get("body.consumer.key"), options.get("body.consumer.secret"));
        let (id, secret, in_body) = match (header, body) {
            ((Some(id), Some(secret)), _) => (id, secret, false),
            (_, (Some(id), Some(secret))) => (id, secret, true),
            ((Some(_), None), _) => return needs("consumer.key", "consumer.secret"),
            ((None, Some(_)), _) => return needs("consumer.secret", "consumer.key"),
            (_, (Some(_), None)) => return needs("body.consumer.key", "body.consumer.secret"),
            (_, (None, Some(_))) => return needs("body.consumer.secret", "body.consumer.key"),
            _ if options.get("token.url").is_some() => return needs("token.url", "consumer.key"),
            _ => return Ok(Self::None),
        };
        let Some(token_url) = options.get("token.url") else { return needs("consumer.key", "token.url") };
        if let Err(e) = Url::parse(token_url) {
            return Err(OptionError::option("token.url", format!("not a URL: {e}")));
        }
        let user = match (options.get("oauth.username"), options.get("oauth.password")) {
            (Some(user), Some(password)) => Some((user.to_owned(), password.to_owned())),
            (None, None) => None,
            _ => return needs("oauth.username", "oauth.password"),
        };
        let refresh = options.get("refresh.token").map(str::to_owned);
        Ok(Self::OAuth(Box::new(OAuth {
            token_url: token_url.to_owned(),
            id: id.to_owned(),
            secret: secret.to_owned(),
            in_body,
            scope: options.get("oauth.scope").map(str::to_owned),
            user,
            tokens: Mutex::new(Tokens { refresh, access: None }),
        })))
    }
}

impl OAuth {
    /// Returns an access token, another one than `refused`.
    ///
    /// Errors: `Unavailable` if the server gives none.
    async fn access_token(&self, client: &Client, refused: Option<&str>) -> Result<String> {
        let mut tokens = self.tokens.lock().await;
        if let Some((token, end)) = &tokens.access
            && Some(token.as_str()) != refused
            && end.is_none_or(|end| Instant::now() + TOKEN_MARGIN < end)
        {
            return Ok(token.clone());
        }
        let mut form: Vec<(&str, &str)> = match (&tokens.refresh, &self.user) {
            (Some(refresh), _) => vec![("grant_type", "refresh_token"), ("refresh_token", refresh)],
            (None, Some((user, password))) => {
                vec![("grant_type", "password"), ("username", user), ("password", password)]
            }
            (None, None) => vec![("grant_type", "client_credentials")],
        };
        form.extend(self.scope.as_deref().map(|scope| ("scope", scope)));
        let request = client.post(&self.token_url);
        let request = match self.in_body {
            true => {
                form.extend([("client_id", self.id.as_str()), ("client_secret", &self.secret)]);
                request
            }
            false => request.basic_auth(&self.id, Some(&self.secret)),
        };
        let failed = |reason: String| Error::unavailable(format!("no access token from token.url: {reason}"));
        let response = request.form(&form).send().await.map_err(|e| failed(describe(&e)))?;
        let status = response.status();
        if !status.is_success() {
            return Err(failed(format!("HTTP {status}")));
        }
        let body = response.bytes().await.map_err(|e| failed(describe(&e)))?;
        let body: serde_json::Value =
            serde_json::from_slice(&body).map_err(|_| failed("the answer is no JSON".into()))?;
        let Some(token) = body["access_token"].as_str() else {
            return Err(failed("the answer has no `access_token`".into()));
        };
        let end = body["expires_in"].as_u64().map(|seconds| Instant::now() + Duration::from_secs(seconds));
        tokens.access = Some((token.to_owned(), end));
        if let Some(refresh) = body["refresh_token"].as_str() {
            tokens.refresh = Some(refresh.to_owned());
        }
        Ok(token.to_owned())
    }
}

/// Parses the URL of a client.
///
/// Errors: it is not an HTTP URL, or one that no request can have.
pub(crate) fn parse_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text.trim()).map_err(|e| format!("not a URL: {e}"))?;
    match url.scheme() {
        "http" | "https" => {}
        scheme => return Err(format!("unknown scheme `{}`; expected `http` or `https`", shortened(scheme))),
    }
    match url.as_str().parse::<http::Uri>() {
        Ok(_) => Ok(url),
        Err(e) => Err(format!(
            "no request can have the URL `{}` of {} bytes: {e}",
            shown_url(&url),
            url.as_str().len()
        )),
    }
}

/// Returns a URL as errors show it: without credentials and query, which may have keys, and of a long one its beginning.
pub(crate) fn shown_url(url: &Url) -> String {
    let port = url.port().map_or(String::new(), |port| format!(":{port}"));
    shortened(&format!("{}://{}{port}{}", url.scheme(), url.host_str().unwrap_or_default(), url.path()))
}

/// Returns why a request failed, without its URL.
pub(crate) fn describe(e: &reqwest::Error) -> String {
    let kind = match e {
        e if e.is_connect() => "cannot connect",
        e if e.is_timeout() => "timed out",
        e if e.is_body() || e.is_decode() => "the body broke off",
        e if e.is_builder() => "the request cannot be made",
        _ => "the exchange failed",
    };
    let mut cause: &dyn std::error::Error = e;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    match std::ptr::addr_eq(cause, e) {
        true => kind.to_owned(),
        false => format!("{kind}: {cause}"),
    }
}

/// Returns status and beginning of an answer, for errors.
pub(crate) fn describe_answer(url: &Url, status: StatusCode, body: &[u8]) -> String {
    let shown = String::from_utf8_lossy(&body[..body.len().min(SHOWN_BYTES)]);
    let shown: String = shown.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let more = if body.len() > SHOWN_BYTES { "…" } else { "" };
    let text = if shown.trim().is_empty() { String::new() } else { format!(": {}{more}", shown.trim()) };
    format!("{} answered HTTP {}{text}", shown_url(url), status.as_u16())
}

/// Returns whether the same request may succeed later.
pub(crate) fn is_temporary(status: StatusCode) -> bool {
    status.is_server_error()
        || [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_EARLY, StatusCode::TOO_MANY_REQUESTS]
            .contains(&status)
}

/// Reads the body of an answer, at most `bytes_max`.
///
/// Errors: it breaks off (`Unavailable`) or is longer (`LimitReached`).
pub(crate) async fn read_body(mut response: Response, url: &Url, bytes_max: usize) -> Result<Vec<u8>> {
    let mut body = vec![];
    loop {
        let chunk = response.chunk().await.map_err(|e| {
            Error::unavailable(format!("the answer of {} broke off: {}", shown_url(url), describe(&e)))
        })?;
        let Some(chunk) = chunk else { return Ok(body) };
        if body.len() + chunk.len() > bytes_max {
            let message = format!("the answer of {} has more than {bytes_max} bytes", shown_url(url));
            return Err(Error::limit(message));
        }
        body.extend_from_slice(&chunk);
    }
}

/// Returns the value of a header as text.
pub(crate) fn header_text(response: &Response, name: header::HeaderName) -> Option<String> {
    response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
}
