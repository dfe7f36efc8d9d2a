//! Objects of stores and web servers: found by URL, read as a stream of bytes.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::sync::Arc;

use anyhow::{Context, bail};
use bytes::{Buf, Bytes};
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, ObjectStoreScheme, parse_url_opts};
use tidemill_connect::runtime;
use tidemill_zones::store_options;
use tokio::sync::mpsc;
use url::Url;

/// Parts of an object that are read ahead.
const PARTS_AHEAD: usize = 8;

/// An object.
#[derive(Debug, Clone)]
pub struct Object {
    /// Its URL, under which its position is stored.
    pub url: String,
    /// Its size.
    pub bytes: u64,
    store: Arc<dyn ObjectStore>,
    path: Path,
}

/// Returns the objects that `url` names, by name: a single one; with `*` those whose paths match; with `/` at its end those
/// below it. Of several, `is_known` decides by their names.
///
/// Errors: the URL has no store, the store does not answer, or the object does not exist.
pub fn find(url: &str, is_known: impl Fn(&str) -> bool) -> anyhow::Result<Vec<Object>> {
    let parsed = Url::parse(url).with_context(|| format!("{url}: not a URL"))?;
    let expected = || format!("{url}: expected s3://, gs://, az://, http:// or https://");
    let (scheme, _) = ObjectStoreScheme::parse(&parsed).with_context(expected)?;
    let options = match scheme {
        ObjectStoreScheme::Http => vec![("allow_http".into(), "true".into())],
        _ => store_options(url, &BTreeMap::new(), std::env::vars())?,
    };
    let (store, path) = parse_url_opts(&parsed, options).with_context(expected)?;
    let store: Arc<dyn ObjectStore> = Arc::from(store);
    if !url.contains('*') && !url.ends_with('/') {
        let found = runtime().block_on(store.head(&path)).with_context(|| url.to_owned())?;
        return Ok(vec![Object { url: url.to_owned(), bytes: found.size, store, path }]);
    }
    if matches!(parsed.scheme(), "http" | "https") {
        bail!("{url}: a web server does not list what it has: expected the URL of one file");
    }
    let pattern = glob::Pattern::new(path.as_ref()).with_context(|| format!("{url}: not a pattern"))?;
    let matches = |found: &Path| match url.contains('*') {
        true => pattern.matches(found.as_ref()),
        false => is_known(found.as_ref()),
    };
    let listing = store.list(Some(&fixed_part(&path))).try_collect::<Vec<_>>();
    let mut found = runtime().block_on(listing).with_context(|| url.to_owned())?;
    found.retain(|object| matches(&object.location));
    found.sort_by(|a, b| a.location.cmp(&b.location));
    let base = url.strip_suffix(parsed.path()).unwrap_or(url);
    let object = |meta: object_store::ObjectMeta| Object {
        url: format!("{base}/{}", meta.location),
        bytes: meta.size,
        store: store.clone(),
        path: meta.location,
    };
    Ok(found.into_iter().map(object).collect())
}

/// Returns the part of a path before the first segment with a `*`.
fn fixed_part(path: &Path) -> Path {
    path.parts().take_while(|part| !part.as_ref().contains('*')).collect()
}

impl Object {
    /// Returns the first `bytes` of the object, or all if it has fewer. Not every web server answers requests for a range, so
    /// the object is read and the rest dropped.
    pub fn first_bytes(&self, bytes: u64) -> io::Result<Vec<u8>> {
        let mut read = Vec::new();
        self.reader().take(bytes).read_to_end(&mut read)?;
        Ok(read)
    }

    /// Returns a reader of the whole object, which is fetched while it is read.
    pub fn reader(&self) -> ObjectReader {
        let (parts, received) = mpsc::channel(PARTS_AHEAD);
        let (store, path) = (self.store.clone(), self.path.clone());
        runtime().spawn(async move {
            let mut stream = match store.get(&path).await {
                Ok(found) => found.into_stream(),
                Err(e) => {
                    // the reader is gone if this fails
                    let _ = parts.send(Err(e)).await;
                    return;
                }
            };
            while let Some(part) = stream.next().await {
                if parts.send(part).await.is_err() {
                    return;
                }
            }
        });
        ObjectReader { parts: received, part: Bytes::new(), left: self.bytes }
    }
}

/// Bytes of an object.
pub struct ObjectReader {
    parts: mpsc::Receiver<object_store::Result<Bytes>>,
    part: Bytes,
    /// Bytes that are still to come.
    left: u64,
}

impl Read for ObjectReader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.part.is_empty() {
            match self.parts.blocking_recv() {
                Some(part) => self.part = part.map_err(io::Error::other)?,
                None if self.left > 0 => {
                    let message = format!("the store ended {} bytes before the end of the object", self.left);
                    return Err(io::Error::other(message));
                }
                None => return Ok(0),
            }
        }
        let bytes = out.len().min(self.part.len());
        self.part.copy_to_slice(&mut out[..bytes]);
        self.left = self.left.saturating_sub(bytes as u64);
        Ok(bytes)
    }
}
