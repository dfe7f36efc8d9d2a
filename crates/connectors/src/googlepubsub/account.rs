//! Service accounts: their files of credentials, and the access tokens that they get.

use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use serde::Deserialize;
use serde_json::json;
use tidemill_types::{Error, Result};
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;

/// Scope of the tokens.
const SCOPE: &str = "https://www.googleapis.com/auth/pubsub";
/// URL that issues tokens if the file does not name one.
const TOKEN_URI: &str = "https://oauth2.googleapis.com/token";
/// Kind of the requests for tokens.
const GRANT_TYPE: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
/// Lifetime of a request for a token, in seconds.
const ASSERTION_S: u64 = 3600;
/// Time before its expiry at which a token is replaced.
const MARGIN: Duration = Duration::from_secs(60);
/// Lifetime of a token in seconds if the answer does not state it.
const LIFETIME_S: u64 = 600;

/// A service account. Its file is read whenever a token is needed, so that a new key takes effect.
pub(super) struct ServiceAccount {
    path: PathBuf,
    token: Option<(String, Instant)>,
}

#[derive(Deserialize)]
struct AccountKey {
    #[serde(rename = "type")]
    kind: String,
    client_email: String,
    private_key: String,
    #[serde(default)]
    private_key_id: String,
    token_uri: Option<String>,
}

#[derive(Deserialize)]
struct Token {
    access_token: String,
    expires_in: Option<u64>,
}

impl ServiceAccount {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, token: None }
    }

    /// Forgets the token, which the other side does not take.
    pub(super) fn forget_token(&mut self) {
        self.token = None;
    }

    /// Returns an access token.
    ///
    /// Errors: `Unavailable`, with the reason why no token could be obtained.
    pub(super) async fn access_token(&mut self, client: &reqwest::Client) -> Result<String> {
        if let Some((token, end)) = &self.token
            && Instant::now() + MARGIN < *end
        {
            return Ok(token.clone());
        }
        let credentials = self.credentials()?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let assertion = assertion(&credentials, now).map_err(|why| self.wrong(why))?;
        let url = credentials.token_uri.as_deref().unwrap_or(TOKEN_URI);
        let form: String = url::form_urlencoded::Serializer::new(String::new())
            .append_pair("grant_type", GRANT_TYPE)
            .append_pair("assertion", &assertion)
            .finish();
        let request = client
            .post(url)
            .header(reqwest::header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(form);
        let failed = |why: String| Error::unavailable(format!("no access token from {url}: {why}"));
        let answer = request.send().await.map_err(|e| failed(e.without_url().to_string()))?;
        let status = answer.status();
        let body = answer.bytes().await.map_err(|e| failed(e.without_url().to_string()))?;
        if !status.is_success() {
            return Err(failed(format!("{status}: {}", refusal(&body))));
        }
        let token: Token =
            serde_json::from_slice(&body).map_err(|_| failed("the answer has no token".into()))?;
        let lifetime = Duration::from_secs(token.expires_in.unwrap_or(LIFETIME_S));
        self.token = Some((token.access_token.clone(), Instant::now() + lifetime));
        Ok(token.access_token)
    }

    fn wrong(&self, why: &str) -> Error {
        Error::unavailable(format!("credential.path: {}: {why}", self.path.display()))
    }

    fn credentials(&self) -> Result<AccountKey> {
        let bytes = std::fs::read(&self.path).map_err(|e| self.wrong(&e.to_string()))?;
        let read: Result<AccountKey, _> = serde_json::from_slice(&bytes);
        // the error would show a part of the file
        let expected =
            "it is no key file of a service account: JSON with `type`, `client_email` and `private_key`";
        let credentials = read.map_err(|_| self.wrong(expected))?;
        match credentials.kind == "service_account" {
            true => Ok(credentials),
            false => Err(self.wrong(expected)),
        }
    }
}

/// Returns the reason in an answer of a token server, without anything else of it.
fn refusal(body: &[u8]) -> String {
    let answer: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    let text = |name: &str| answer.get(name).and_then(|text| text.as_str());
    text("error_description").or_else(|| text("error")).unwrap_or("no reason is given").to_owned()
}

/// Returns a signed request for a token, a JSON Web Token.
///
/// Errors: the key cannot be used.
fn assertion(credentials: &AccountKey, now: u64) -> Result<String, &'static str> {
    let header = json!({ "alg": "RS256", "typ": "JWT", "kid": credentials.private_key_id });
    let claims = json!({
        "iss": credentials.client_email,
        "scope": SCOPE,
        "aud": credentials.token_uri.as_deref().unwrap_or(TOKEN_URI),
        "iat": now,
        "exp": now + ASSERTION_S,
    });
    let encode = |part: &serde_json::Value| URL_SAFE_NO_PAD.encode(part.to_string());
    let signed = format!("{}.{}", encode(&header), encode(&claims));
    let key = PrivatePkcs8KeyDer::from_pem_slice(credentials.private_key.as_bytes())
        .map_err(|_| "`private_key` is no PEM text with a PKCS #8 key")?;
    let key = RsaKeyPair::from_pkcs8(key.secret_pkcs8_der()).map_err(|_| "`private_key` is no RSA key")?;
    let mut signature = vec![0; key.public().modulus_len()];
    key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), signed.as_bytes(), &mut signature)
        .map_err(|_| "`private_key` cannot sign")?;
    Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
}
