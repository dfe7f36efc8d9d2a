//! Options of object stores: from settings, from a file with credentials, and from the environment.

use std::collections::BTreeMap;
use std::path::Path as FsPath;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::{BackoffConfig, ObjectStore, ObjectStoreScheme, RetryConfig};
use tidemill_types::{Error, Result, did_you_mean};
use url::Url;

use crate::error::store_error;

/// Setting that names a file with further options. Only this crate knows it, no object store does.
const CREDENTIALS_FILE: &str = "credentials_file";

/// Attempts and delays of the client for one request. [`crate::ZonesOptions::retry_attempts`] bounds how often an operation
/// of a table repeats that; reads of queries are not repeated beyond it.
const CLIENT_RETRIES: usize = 4;
const CLIENT_RETRY_TIMEOUT: Duration = Duration::from_secs(20);
const CLIENT_BACKOFF_MAX: Duration = Duration::from_secs(2);

/// Prefix of the variables of an object store in the environment, and names of options that people mistype.
struct Family {
    prefix: &'static str,
    examples: &'static [&'static str],
}

const S3: Family = Family {
    prefix: "aws_",
    examples: &["access_key_id", "secret_access_key", "session_token", "region", "endpoint", "allow_http"],
};
const GOOGLE: Family =
    Family { prefix: "google_", examples: &["service_account", "service_account_key", "bucket"] };
const AZURE: Family = Family {
    prefix: "azure_",
    examples: &[
        "account_name",
        "access_key",
        "container_name",
        "sas_token",
        "client_id",
        "client_secret",
        "endpoint",
    ],
};

/// Returns the options of the object store of `location`, those that win last: variables of `environment` such as
/// `AWS_ACCESS_KEY_ID`, then the file that `settings` name as `credentials_file`, then `settings`.
///
/// Errors: `Invalid` for options that the store does not know, for secrets in `settings`, and for a file that cannot be
/// read. No message contains a value.
pub fn store_options(
    location: &str,
    settings: &BTreeMap<String, String>,
    environment: impl Iterator<Item = (String, String)>,
) -> Result<Vec<(String, String)>> {
    check_store_settings(location, settings)?;
    let Some(scheme) = remote_scheme(location)? else { return Ok(Vec::new()) };
    let prefix = family(&scheme)?.prefix;
    let environment = environment.map(|(name, value)| (name.to_ascii_lowercase(), value));
    let mut options: Vec<(String, String)> =
        environment.filter(|(name, _)| name.starts_with(prefix) && is_known(&scheme, name)).collect();
    if let Some(file) = settings.get(CREDENTIALS_FILE) {
        options.extend(read_credentials(&scheme, FsPath::new(file))?);
    }
    let plain = settings.iter().filter(|(name, _)| *name != CREDENTIALS_FILE);
    options.extend(plain.map(|(name, value)| (name.to_ascii_lowercase(), value.clone())));
    Ok(with_plain_http(options))
}

/// Checks the options of the object store of `location` that stand in settings, without reading anything.
///
/// Errors: `Invalid` as in [`store_options`], and for options of a location that is not an object store.
pub fn check_store_settings(location: &str, settings: &BTreeMap<String, String>) -> Result<()> {
    let Some(name) = settings.keys().next() else { return Ok(()) };
    let Some(scheme) = remote_scheme(location)? else {
        return Err(Error::invalid(format!(
            "tables_store.{name} is set, but `{location}` is no object store: expected tables = \"s3://bucket/prefix\", \
             gs://… or az://…"
        )));
    };
    for name in settings.keys().filter(|name| *name != CREDENTIALS_FILE) {
        check_option(&scheme, name).map_err(|e| e.context("tables_store"))?;
        if is_secret(&scheme, &name.to_ascii_lowercase()) {
            return Err(Error::invalid(format!(
                "tables_store.{name} is a secret, which does not belong into an app: set the environment variable {}, or \
                 write it into a file and name that as tables_store.{CREDENTIALS_FILE}",
                format!("{}{}", family(&scheme)?.prefix, name.trim_start_matches(family(&scheme)?.prefix))
                    .to_ascii_uppercase()
            )));
        }
    }
    Ok(())
}

/// Reads options as TOML: `secret_access_key = "…"`.
fn read_credentials(scheme: &ObjectStoreScheme, file: &FsPath) -> Result<Vec<(String, String)>> {
    let place = || format!("tables_store.{CREDENTIALS_FILE} = \"{}\"", file.display());
    let text = std::fs::read_to_string(file)
        .map_err(|e| Error::invalid(format!("{}: the file cannot be read", place())).with_source(e))?;
    // The error of TOML shows the line, which may be a secret.
    let options: BTreeMap<String, String> = toml::from_str(&text).map_err(|_| {
        Error::invalid(format!("{}: expected lines such as secret_access_key = \"…\"", place()))
    })?;
    options.keys().try_for_each(|name| check_option(scheme, name)).map_err(|e| e.context(place()))?;
    Ok(options.into_iter().map(|(name, value)| (name.to_ascii_lowercase(), value)).collect())
}

/// Opens the client of a remote object store.
///
/// Errors: `Invalid` for options that the store does not know and for a scheme of no object store.
pub(crate) fn open_remote(url: &Url, options: &[(String, String)]) -> Result<Arc<dyn ObjectStore>> {
    if !url.username().is_empty() || url.password().is_some() {
        return Err(Error::invalid(
            "the URL of the object store contains a user or password: expected s3://bucket/prefix, with the credentials in \
             the environment, such as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        ));
    }
    let scheme = parse_scheme(url)?;
    options.iter().try_for_each(|(name, _)| check_option(&scheme, name))?;
    let options = options.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let failed = |e| store_error(format!("the store `{url}` cannot be opened"), e);
    match scheme {
        ObjectStoreScheme::AmazonS3 => options
            .filter_map(|(name, value)| Some((AmazonS3ConfigKey::from_str(name).ok()?, value)))
            .fold(AmazonS3Builder::new(), |builder, (key, value)| builder.with_config(key, value))
            .with_url(url.as_str())
            .with_retry(client_retries())
            .build()
            .map(|store| Arc::new(store) as Arc<dyn ObjectStore>)
            .map_err(failed),
        ObjectStoreScheme::GoogleCloudStorage => options
            .filter_map(|(name, value)| Some((GoogleConfigKey::from_str(name).ok()?, value)))
            .fold(GoogleCloudStorageBuilder::new(), |builder, (key, value)| builder.with_config(key, value))
            .with_url(url.as_str())
            .with_retry(client_retries())
            .build()
            .map(|store| Arc::new(store) as Arc<dyn ObjectStore>)
            .map_err(failed),
        _ => options
            .filter_map(|(name, value)| Some((AzureConfigKey::from_str(name).ok()?, value)))
            .fold(MicrosoftAzureBuilder::new(), |builder, (key, value)| builder.with_config(key, value))
            .with_url(url.as_str())
            .with_retry(client_retries())
            .build()
            .map(|store| Arc::new(store) as Arc<dyn ObjectStore>)
            .map_err(failed),
    }
}

/// Allows plain HTTP if the endpoint begins with `http://`, unless `allow_http` is given.
fn with_plain_http(mut options: Vec<(String, String)>) -> Vec<(String, String)> {
    let plain_name = |name: &'_ str| name.trim_start_matches("aws_").trim_start_matches("azure_").to_owned();
    let names = |wanted: &str, name: &str| plain_name(name).starts_with(wanted);
    let endpoint = options.iter().rfind(|(name, _)| names("endpoint", name));
    let plain = endpoint.is_some_and(|(_, value)| value.starts_with("http://"));
    if plain && !options.iter().any(|(name, _)| names("allow_http", name)) {
        options.push(("allow_http".to_owned(), "true".to_owned()));
    }
    options
}

fn client_retries() -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig { max_backoff: CLIENT_BACKOFF_MAX, ..BackoffConfig::default() },
        max_retries: CLIENT_RETRIES,
        retry_timeout: CLIENT_RETRY_TIMEOUT,
    }
}

/// Returns the scheme of a location that is a remote object store; `None` for local directories and memory.
fn remote_scheme(location: &str) -> Result<Option<ObjectStoreScheme>> {
    let Some((scheme, _)) = location.split_once("://") else { return Ok(None) };
    if matches!(scheme, "file" | "memory") {
        return Ok(None);
    }
    let url = Url::parse(location).map_err(|e| {
        Error::invalid(format!("`{location}` is not a location: expected s3://bucket/prefix")).with_source(e)
    })?;
    parse_scheme(&url).map(Some)
}

fn parse_scheme(url: &Url) -> Result<ObjectStoreScheme> {
    let expected = "expected a directory, or file://, memory://, s3://, gs://, az://";
    let (scheme, _) =
        ObjectStoreScheme::parse(url).map_err(|e| Error::invalid(format!("`{url}`: {e}; {expected}")))?;
    match scheme {
        ObjectStoreScheme::AmazonS3
        | ObjectStoreScheme::GoogleCloudStorage
        | ObjectStoreScheme::MicrosoftAzure => Ok(scheme),
        _ => Err(Error::invalid(format!("`{url}` is no object store: {expected}"))),
    }
}

fn family(scheme: &ObjectStoreScheme) -> Result<&'static Family> {
    match scheme {
        ObjectStoreScheme::AmazonS3 => Ok(&S3),
        ObjectStoreScheme::GoogleCloudStorage => Ok(&GOOGLE),
        ObjectStoreScheme::MicrosoftAzure => Ok(&AZURE),
        _ => Err(Error::internal("a location that is no remote object store has no options")),
    }
}

fn is_known(scheme: &ObjectStoreScheme, name: &str) -> bool {
    match scheme {
        ObjectStoreScheme::AmazonS3 => AmazonS3ConfigKey::from_str(name).is_ok(),
        ObjectStoreScheme::GoogleCloudStorage => GoogleConfigKey::from_str(name).is_ok(),
        ObjectStoreScheme::MicrosoftAzure => AzureConfigKey::from_str(name).is_ok(),
        _ => false,
    }
}

fn is_secret(scheme: &ObjectStoreScheme, name: &str) -> bool {
    match scheme {
        ObjectStoreScheme::AmazonS3 => {
            let key = AmazonS3ConfigKey::from_str(name);
            matches!(key, Ok(AmazonS3ConfigKey::SecretAccessKey | AmazonS3ConfigKey::Token))
                || name.ends_with("sse_customer_key_base64")
        }
        ObjectStoreScheme::GoogleCloudStorage => {
            matches!(GoogleConfigKey::from_str(name), Ok(GoogleConfigKey::ServiceAccountKey))
        }
        ObjectStoreScheme::MicrosoftAzure => matches!(
            AzureConfigKey::from_str(name),
            Ok(AzureConfigKey::AccessKey
                | AzureConfigKey::ClientSecret
                | AzureConfigKey::SasKey
                | AzureConfigKey::Token
                | AzureConfigKey::FabricSessionToken)
        ),
        _ => false,
    }
}

/// Rejects unknown options, because the store's own builder silently ignores mistyped keys.
fn check_option(scheme: &ObjectStoreScheme, name: &str) -> Result<()> {
    let lower = name.to_ascii_lowercase();
    if is_known(scheme, &lower) {
        return Ok(());
    }
    let examples = family(scheme)?.examples.iter().copied().chain([CREDENTIALS_FILE]);
    Err(Error::invalid(format!("unknown store option `{name}`{}", did_you_mean(&lower, examples))))
}

#[cfg(test)]
mod tests;
