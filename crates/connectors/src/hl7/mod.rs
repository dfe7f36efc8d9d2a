//! HL7 version 2 over TCP: messages in the frames of MLLP, each acknowledged by the receiver.

mod acknowledgement;
mod frame;
mod sink;
mod source;

use tidemill_connect::{Catalog, OptionError, OptionSpec, Options};

/// Adds source and sink.
pub(crate) fn add(catalog: &mut Catalog) {
    catalog.add_source(source::Hl7SourceType).add_sink(sink::Hl7SinkType);
}

/// Form of messages and of acknowledgements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encoding {
    /// Segments with fields between bars.
    Er7,
    /// HL7's XML.
    Xml,
}

const ENCODINGS: &[&str] = &["er7", "xml"];

const CHARSET: OptionSpec =
    OptionSpec::text("charset", "Encoding of the characters; only UTF-8 is possible.").default("UTF-8");
const TLS: OptionSpec =
    OptionSpec::flag("tls.enabled", "false", "TLS is not possible; use a proxy that speaks it.");

impl Encoding {
    fn of(options: &Options, name: &str) -> Self {
        match options.text(name).eq_ignore_ascii_case("xml") {
            true => Self::Xml,
            false => Self::Er7,
        }
    }
}

/// Refuses options that are Siddhi's and not possible here.
fn check_common(options: &Options) -> Result<(), OptionError> {
    if !["utf-8", "utf8"].contains(&options.text("charset").to_ascii_lowercase().as_str()) {
        return Err(OptionError::option("charset", "only UTF-8 is possible").expected(["charset='UTF-8'"]));
    }
    match options.flag("tls.enabled") {
        true => Err(OptionError::option(
            "tls.enabled",
            "TLS is not possible; put a proxy that speaks it before the port",
        )),
        false => Ok(()),
    }
}
