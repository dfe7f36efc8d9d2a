//! The sink `s3`.

use std::sync::Arc;

use object_store::aws::AmazonS3Builder;
use tidemill_connect::{
    ConnectorContext, DeliveryGuarantee, OptionError, OptionSpec, Options, SinkConnector, SinkType,
};
use tidemill_types::{Error, Result};
use url::Url;

use super::bucket::{Bucket, Storage, client_options, reason, retries};
use super::object::{FLUSH_SIZE_MAX, Objects, joining, mark};
use super::profile;
use super::sink::ObjectSink;

const STORAGE_CLASSES: &[&str] = &[
    "standard",
    "standard_ia",
    "onezone_ia",
    "intelligent_tiering",
    "reduced_redundancy",
    "glacier",
    "glacier_ir",
    "deep_archive",
];

const OPTIONS: &[OptionSpec] = &[
    OptionSpec::text("bucket.name", "Bucket, which must be there.").required(),
    OptionSpec::text("object.path", "Where the objects lie in the bucket, as in `orders/{{site}}`.")
        .required()
        .dynamic(),
    OptionSpec::integer("flush.size", 1, FLUSH_SIZE_MAX, "Events of one object, at most.").default("1"),
    OptionSpec::text("aws.access.key", "Access key; with `aws.secret.key`.").secret(),
    OptionSpec::text("aws.secret.key", "Secret key.").secret(),
    OptionSpec::text(
        "credential.provider.class",
        "Where the keys are, by the name of a class of AWS's SDK, such as `ProfileCredentialsProvider`.",
    )
    .alias("credential.provider"),
    OptionSpec::text(
        "aws.region",
        "Region of the bucket; default: that of the environment, otherwise us-east-1.",
    ),
    OptionSpec::text(
        "endpoint",
        "Where another service with the interface of S3 answers, as in `http://localhost:9000`.",
    ),
    OptionSpec::one_of("storage.class", STORAGE_CLASSES, "Storage class of the objects.").default("standard"),
    OptionSpec::text("content.type", "Content type of the objects.")
        .default("application/octet-stream")
        .dynamic(),
    OptionSpec::text("xml.enclosing.element", "Element that has those of an object, of the mapper xml.")
        .default("Events"),
    OptionSpec::text("node.id", "Becomes a part of the names of the objects."),
    OptionSpec::flag(
        "versioning.enabled",
        "false",
        "Accepted without effect: it is for buckets that are made, and none are.",
    ),
    OptionSpec::text("bucket.acl", "Accepted without effect, as `versioning.enabled`."),
];

/// Type of the sink `s3`.
pub(super) struct S3SinkType;

/// Source of the keys.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Keys {
    /// The options.
    Given { access: String, secret: String },
    /// The variables `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`.
    Environment,
    /// The file `~/.aws/credentials`.
    Profile,
    /// The machine or the container that this program runs on, or a token of a web identity.
    Machine,
    /// None: requests are not signed.
    Anonymous,
    /// The first of environment, profile and machine that there is.
    Any,
}

impl SinkType for S3SinkType {
    fn name(&self) -> &'static str {
        "s3"
    }

    fn summary(&self) -> &'static str {
        "Writes events as objects of Amazon S3, or of a service with its interface."
    }

    fn options(&self) -> &'static [OptionSpec] {
        OPTIONS
    }

    fn guarantee(&self) -> DeliveryGuarantee {
        DeliveryGuarantee::ExactlyOnce
    }

    fn create(
        &self,
        options: &Options,
        context: &ConnectorContext,
    ) -> Result<Box<dyn SinkConnector>, OptionError> {
        let bucket = bucket_name(options)?;
        let keys = keys(options)?;
        let endpoint = options.get("endpoint").map(parse_endpoint).transpose()?;
        let template = |name: &str| context.template(options, name);
        let mark = mark(&context.writer, options.text("object.path"));
        let node = options.get("node.id").map_or(String::new(), |id| format!("{id}-"));
        let (joining, extension) =
            joining(options, context.mapper.as_deref(), options.text("xml.enclosing.element"), None)?;
        let objects = Objects {
            place: template("object.path")?,
            separator: "/",
            content_type: template("content.type")?,
            flush_size: options.integer("flush.size").unwrap_or(1) as usize,
            joining,
            stem: format!("{}-{node}{mark}", context.schema.name),
            extension,
        };
        let class = options.text("storage.class").to_ascii_uppercase();
        let storage = Storage { class: (class != "STANDARD").then_some(class) };
        let region = options.get("aws.region").map(|name| name.trim().to_ascii_lowercase().replace('_', "-"));
        let open = move || open(&bucket, &keys, region.as_deref(), endpoint.as_ref());
        Ok(Box::new(ObjectSink::new(Box::new(open), objects, storage, &mark, context.shares_partitions)))
    }
}

/// Returns the name of the bucket.
///
/// Errors: the text is not the name of a bucket.
pub(super) fn bucket_name(options: &Options) -> Result<String, OptionError> {
    let name = options.text("bucket.name").trim();
    let is_name = (3..=222).contains(&name.len())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '-' | '_'))
        && name.starts_with(|c: char| c.is_ascii_alphanumeric());
    match is_name {
        true => Ok(name.to_owned()),
        false => Err(OptionError::option(
            "bucket.name",
            "expected 3 or more of small letters, digits, `.`, `-` and `_`, without a path",
        )
        .expected(["bucket.name='shop-orders'"])),
    }
}

/// Returns the URL of an endpoint.
///
/// Errors: the text is not a URL, or has parts that an endpoint does not have.
pub(super) fn parse_endpoint(text: &str) -> Result<Url, OptionError> {
    let url =
        Url::parse(text.trim()).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    let url =
        url.ok_or_else(|| OptionError::option("endpoint", "expected `https://host` or `http://host:port`"))?;
    let is_plain = url.username().is_empty() && url.password().is_none() && url.query().is_none();
    match is_plain {
        true => Ok(url),
        false => {
            Err(OptionError::option("endpoint", "expected a URL without a login and without parameters"))
        }
    }
}

fn keys(options: &Options) -> Result<Keys, OptionError> {
    let given = match (options.get("aws.access.key"), options.get("aws.secret.key")) {
        (Some(access), Some(secret)) => {
            Some(Keys::Given { access: access.to_owned(), secret: secret.to_owned() })
        }
        (None, None) => None,
        (Some(_), None) => {
            return Err(OptionError::option("aws.access.key", "it needs `aws.secret.key`"));
        }
        (None, Some(_)) => {
            return Err(OptionError::option("aws.secret.key", "it needs `aws.access.key`"));
        }
    };
    let Some(class) =
        options.get("credential.provider.class").map(str::trim).filter(|class| !class.is_empty())
    else {
        return Ok(given.unwrap_or(Keys::Any));
    };
    if given.is_some() {
        return Err(OptionError::option(
            "credential.provider.class",
            "it cannot stand beside `aws.access.key` and `aws.secret.key`",
        ));
    }
    Ok(match class.rsplit('.').next().unwrap_or(class) {
        "EnvironmentVariableCredentialsProvider" => Keys::Environment,
        "ProfileCredentialsProvider" => Keys::Profile,
        "InstanceProfileCredentialsProvider"
        | "ContainerCredentialsProvider"
        | "EC2ContainerCredentialsProviderWrapper"
        | "WebIdentityTokenFileCredentialsProvider"
        | "WebIdentityTokenCredentialsProvider" => Keys::Machine,
        "AnonymousCredentialsProvider" => Keys::Anonymous,
        "DefaultCredentialsProvider"
        | "DefaultAWSCredentialsProviderChain"
        | "AwsCredentialsProviderChain" => Keys::Any,
        _ => {
            return Err(OptionError::option(
                "credential.provider.class",
                "this class is not known here: the keys come from the environment, a profile or the machine",
            )
            .expected([
                "EnvironmentVariableCredentialsProvider",
                "ProfileCredentialsProvider",
                "InstanceProfileCredentialsProvider",
                "ContainerCredentialsProvider",
                "WebIdentityTokenFileCredentialsProvider",
                "AnonymousCredentialsProvider",
                "DefaultCredentialsProvider",
            ]));
        }
    })
}

fn open(bucket: &str, keys: &Keys, region: Option<&str>, endpoint: Option<&Url>) -> Result<Bucket> {
    let name = format!("s3://{bucket}");
    let has_variables = std::env::var_os("AWS_ACCESS_KEY_ID").is_some_and(|value| !value.is_empty());
    let mut builder = AmazonS3Builder::from_env();
    match keys {
        Keys::Given { access, secret } => {
            // a session token of the environment belongs to other keys
            builder = base(region_of_environment(), endpoint_of_environment())
                .with_access_key_id(access)
                .with_secret_access_key(secret);
        }
        Keys::Environment if !has_variables => {
            return Err(Error::unavailable(format!("{name}: the variable AWS_ACCESS_KEY_ID is not set")));
        }
        Keys::Environment => {}
        Keys::Machine => {
            builder = without_keys();
        }
        Keys::Anonymous => builder = builder.with_skip_signature(true),
        Keys::Any if has_variables => {}
        Keys::Profile | Keys::Any => match (profile_keys(), keys) {
            (Ok(found), _) => {
                builder = base(region_of_environment(), endpoint_of_environment())
                    .with_access_key_id(found.access_key)
                    .with_secret_access_key(found.secret_key);
                if let Some(token) = found.token {
                    builder = builder.with_token(token);
                }
            }
            (Err(why), Keys::Profile) => return Err(Error::unavailable(format!("{name}: {why}"))),
            (Err(_), _) => {}
        },
    }
    if let Some(region) = region {
        builder = builder.with_region(region);
    }
    let is_plain = endpoint.map_or_else(
        || endpoint_of_environment().is_some_and(|url| url.starts_with("http://")),
        |url| url.scheme() == "http",
    );
    if let Some(url) = endpoint {
        builder = builder
            .with_endpoint(url.as_str().trim_end_matches('/'))
            .with_virtual_hosted_style_request(false);
    }
    let built = builder
        .with_bucket_name(bucket)
        .with_client_options(client_options(is_plain))
        .with_retry(retries())
        .build();
    match built {
        Ok(store) => Ok(Bucket::new(Arc::new(store), name)),
        Err(e) => Err(Error::unavailable(format!("{name}: {}", reason(&e)))),
    }
}

/// Returns the keys of the profile that is in use.
///
/// Errors: the reason why no keys were found.
fn profile_keys() -> Result<profile::Profile, String> {
    let (file, name) = profile::location().ok_or("there is no home directory with `.aws/credentials`")?;
    let text = std::fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
    profile::parse(&text, &name)
        .ok_or_else(|| format!("{}: no profile `{name}` with both keys", file.display()))
}

fn base(region: Option<String>, endpoint: Option<String>) -> AmazonS3Builder {
    let mut builder = AmazonS3Builder::new();
    if let Some(region) = region {
        builder = builder.with_region(region);
    }
    match endpoint {
        Some(endpoint) => builder.with_endpoint(endpoint),
        None => builder,
    }
}

/// Returns the settings of the environment, except for keys.
fn without_keys() -> AmazonS3Builder {
    let is_key = |name: &str| {
        ["aws_access_key_id", "aws_secret_access_key", "aws_session_token", "aws_token"].contains(&name)
    };
    let texts = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let named = texts.map(|(name, value)| (name.to_ascii_lowercase(), value));
    let settings = named.filter(|(name, _)| name.starts_with("aws_") && !is_key(name));
    settings.fold(AmazonS3Builder::new(), |builder, (name, value)| match name.parse() {
        Ok(key) => builder.with_config(key, value),
        Err(_) => builder,
    })
}

fn region_of_environment() -> Option<String> {
    std::env::var("AWS_REGION").or_else(|_| std::env::var("AWS_DEFAULT_REGION")).ok()
}

fn endpoint_of_environment() -> Option<String> {
    let names = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"];
    names.iter().find_map(|name| std::env::var(name).ok())
}
