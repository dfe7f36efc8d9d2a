//! Changes of a table of a database as a source.

mod listening;
mod options;
mod polling;
mod progress;
mod snapshot;
mod transaction;

use tidemill_connect::{
    Catalog, ConnectorContext, DeliveryGuarantee, OptionError, OptionSpec, Options, SourceConnector,
    SourceType,
};

use options::Mode;

/// Adds the source.
pub(crate) fn add(catalog: &mut Catalog) {
    catalog.add_source(CdcSourceType);
}

/// Type of the source `cdc`.
struct CdcSourceType;

impl SourceType for CdcSourceType {
    fn name(&self) -> &'static str {
        "cdc"
    }

    fn summary(&self) -> &'static str {
        "Inserts, updates and deletes of a table of PostgreSQL, MariaDB or MySQL, from its log or by polling a column."
    }

    fn options(&self) -> &'static [OptionSpec] {
        options::OPTIONS
    }

    fn guarantee(&self) -> DeliveryGuarantee {
        DeliveryGuarantee::ExactlyOnce
    }

    fn create(
        &self,
        options: &Options,
        context: &ConnectorContext,
    ) -> Result<Box<dyn SourceConnector>, OptionError> {
        let (settings, mode) = options::read(options, context)?;
        Ok(match mode {
            Mode::Listening { snapshot, slot_is_own } => {
                Box::new(listening::Listening::new(settings, snapshot, slot_is_own))
            }
            Mode::Polling(polling) => Box::new(polling::Polling::new(settings, polling)),
        })
    }
}
