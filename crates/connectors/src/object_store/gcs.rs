//! The sink `google-cloud-storage`.

use std::path::PathBuf;
use std::sync::Arc;

use object_store::StaticCredentialProvider;
use object_store::gcp::{GcpCredential, GoogleCloudStorageBuilder};
use tidemill_connect::{
    ConnectorContext, DeliveryGuarantee, OptionError, OptionSpec, Options, SinkConnector, SinkType,
};
use tidemill_types::{Error, Result};
use url::Url;

use super::bucket::{Bucket, Storage, client_options, reason, retries};
use super::object::{FLUSH_SIZE_MAX, Objects, joining, mark};
use super::s3::{bucket_name, parse_endpoint};
use super::sink::ObjectSink;

const STORAGE_CLASSES: &[&str] = &[
    "standard",
    "nearline",
    "coldline",
    "archive",
    "multi_regional",
    "regional",
    "durable_reduced_availability",
];
/// Separator of the texts of an object, as in Siddhi.
const TEXT_DELIMITER: &str = "~~~~~~~~~";

const OPTIONS: &[OptionSpec] = &[
    OptionSpec::text("bucket.name", "Bucket, which must be there.").required(),
    OptionSpec::text(
        "object.name",
        "Beginning of the names of the objects, as in `orders/{{site}}`; default: the name of the stream.",
    )
    .dynamic(),
    OptionSpec::integer("flush.size", 1, FLUSH_SIZE_MAX, "Events of one object, at most.").default("1"),
    OptionSpec::text(
        "credential.path",
        "File with credentials, in JSON; default: that of the variable GOOGLE_APPLICATION_CREDENTIALS, then those of the machine.",
    ),
    OptionSpec::text(
        "endpoint",
        "Where another service with the interface answers, as in `http://localhost:4443`. Without `credential.path`, requests have no token.",
    ),
    OptionSpec::one_of(
        "storage.class",
        STORAGE_CLASSES,
        "Storage class of the objects; default: that of the bucket.",
    ),
    OptionSpec::text("content.type", "Content type of the objects; default: by the mapper.").dynamic(),
    OptionSpec::text(
        "text.delimiter",
        "Text between the texts of an object, of the mappers text and keyvalue.",
    )
    .default(TEXT_DELIMITER),
    OptionSpec::text("xml.enclosing.element", "Element that has those of an object, of the mapper xml.")
        .default("Elements"),
    OptionSpec::flag(
        "versioning.enabled",
        "false",
        "Accepted without effect: it is for buckets that are made, and none are.",
    ),
    OptionSpec::text("bucket.acl", "Accepted without effect, as `versioning.enabled`."),
    OptionSpec::text("flush.timeout", "Accepted without effect: events do not wait for others."),
    OptionSpec::text("rotate.interval.ms", "Accepted without effect, as `flush.timeout`."),
    OptionSpec::text("rotate.scheduled.interval.ms", "Accepted without effect, as `flush.timeout`."),
];

/// Type of the sink `google-cloud-storage`.
pub(super) struct GcsSinkType;

impl SinkType for GcsSinkType {
    fn name(&self) -> &'static str {
        "google-cloud-storage"
    }

    fn summary(&self) -> &'static str {
        "Writes events as objects of Google Cloud Storage."
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
        let endpoint = options.get("endpoint").map(parse_endpoint).transpose()?;
        let credentials = options.get("credential.path").map(|path| context.dir.join(path));
        let element = options.text("xml.enclosing.element");
        let (joining, extension) =
            joining(options, context.mapper.as_deref(), element, options.get("text.delimiter"))?;
        let content_type = options.get("content.type").unwrap_or(match extension {
            "json" => "application/json",
            "xml" => "application/xml",
            "csv" => "text/csv",
            "txt" => "text/plain",
            _ => "application/octet-stream",
        });
        let mark = mark(&context.writer, options.text("object.name"));
        let objects = Objects {
            place: context
                .parse_template("object.name", options.get("object.name").unwrap_or(&context.schema.name))?,
            separator: "-",
            content_type: context.parse_template("content.type", content_type)?,
            flush_size: options.integer("flush.size").unwrap_or(1) as usize,
            joining,
            stem: mark.clone(),
            extension,
        };
        let storage = Storage { class: options.get("storage.class").map(str::to_ascii_uppercase) };
        let open = move || open(&bucket, credentials.as_ref(), endpoint.as_ref());
        Ok(Box::new(ObjectSink::new(Box::new(open), objects, storage, &mark, context.shares_partitions)))
    }
}

fn open(bucket: &str, credentials: Option<&PathBuf>, endpoint: Option<&Url>) -> Result<Bucket> {
    let name = format!("gs://{bucket}");
    let mut builder = match (credentials, endpoint) {
        (None, None) => GoogleCloudStorageBuilder::from_env(),
        _ => GoogleCloudStorageBuilder::new(),
    };
    if let Some(path) = credentials {
        // the error of the library shows a part of the file
        let text = std::fs::read(path)
            .map_err(|e| Error::unavailable(format!("{name}: {}: {e}", path.display())))?;
        let has_type = serde_json::from_slice::<serde_json::Value>(&text)
            .is_ok_and(|json| matches!(json["type"].as_str(), Some("service_account" | "authorized_user")));
        if !has_type {
            return Err(Error::unavailable(format!(
                "{name}: {}: it is no file with credentials: expected JSON with \"type\": \"service_account\" or \
                 \"authorized_user\"",
                path.display()
            )));
        }
        builder = builder.with_application_credentials(path.display().to_string());
    }
    if let Some(url) = endpoint {
        builder = builder.with_base_url(url.as_str().trim_end_matches('/'));
        if credentials.is_none() {
            // writes are sent with a token in any case; an emulator takes any
            let nobody = GcpCredential { bearer: String::new() };
            builder = builder.with_credentials(Arc::new(StaticCredentialProvider::new(nobody)));
        }
    }
    let is_plain = endpoint.is_some_and(|url| url.scheme() == "http");
    let built = builder
        .with_bucket_name(bucket)
        .with_client_options(client_options(is_plain))
        .with_retry(retries())
        .build();
    match built {
        Ok(store) => Ok(Bucket::new(Arc::new(store), name)),
        Err(e) if credentials.is_some() => {
            let path = credentials.map(|path| path.display().to_string()).unwrap_or_default();
            let why = match e {
                object_store::Error::Generic { .. } => "the credentials in it cannot be used".to_owned(),
                e => reason(&e),
            };
            Err(Error::unavailable(format!("{name}: {path}: {why}")))
        }
        Err(e) => Err(Error::unavailable(format!("{name}: {}", reason(&e)))),
    }
}
