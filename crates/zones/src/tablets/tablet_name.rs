//! Names of tablets.

/// Returns the id in the name of a tablet that this crate wrote; `None` for other files.
pub(crate) fn tablet_id(name: &str) -> Option<uuid::Uuid> {
    let (level, file) = name.strip_prefix("tablets/")?.split_once('/')?;
    level.parse::<u32>().ok()?;
    uuid::Uuid::try_parse(file.strip_suffix(".parquet")?).ok()
}
