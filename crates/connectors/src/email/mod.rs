//! E-mail: a sink that sends over SMTP, and a source that reads a folder over IMAP.

mod connection;
mod search;
mod sink;
mod source;

use tidemill_connect::{Catalog, ConnectorContext, OptionError, OptionSpec, Options};
use tidemill_tls::PemFile;

use crate::tls::OptionFile;

/// Adds source and sink to a catalog.
pub(crate) fn add(catalog: &mut Catalog) {
    catalog.add_source(source::EmailSourceType).add_sink(sink::EmailSinkType);
}

const SSL_ENABLE: OptionSpec =
    OptionSpec::flag("ssl.enable", "true", "Whether the connection is encrypted from its beginning.");
const STARTTLS: OptionSpec = OptionSpec::one_of(
    "starttls",
    &["none", "optional", "required"],
    "Whether a connection with ssl.enable='false' becomes encrypted by STARTTLS before the login.",
)
.default("optional");
const CA_FILE: OptionSpec = OptionSpec::text(
    "ssl.ca.location",
    "PEM file with certificates of authorities that are trusted besides those of the system.",
);

/// Reads the file of the option `ssl.ca.location`.
///
/// Errors: it cannot be read, or has no certificate.
fn ca_file(options: &Options, context: &ConnectorContext) -> Result<Option<PemFile>, OptionError> {
    let Some(file) = OptionFile::read(options, CA_FILE.name, &context.dir)? else { return Ok(None) };
    file.certificates()?;
    Ok(Some(file.pem))
}

/// Encryption of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Security {
    /// From its beginning.
    Tls,
    /// After STARTTLS, without which the connection is not used.
    StartTls,
    /// After STARTTLS if the server offers it.
    StartTlsIfOffered,
    /// Not at all.
    None,
}

impl Security {
    fn of(options: &Options) -> Self {
        match (options.flag(SSL_ENABLE.name), options.text(STARTTLS.name).to_ascii_lowercase().as_str()) {
            (true, _) => Self::Tls,
            (false, "required") => Self::StartTls,
            (false, "none") => Self::None,
            (false, _) => Self::StartTlsIfOffered,
        }
    }
}
