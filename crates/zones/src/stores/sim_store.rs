//! An object store for tests that fails on demand or at random.
//!
//! Behind the feature `sim`.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMode,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use parking_lot::Mutex;
use rand::Rng;
use rand::rngs::StdRng;

/// A store that becomes unavailable and loses responses on demand.
#[derive(Debug)]
pub struct FaultyStore {
    /// The store below.
    pub inner: Arc<dyn ObjectStore>,
    /// True if every operation fails.
    pub down: AtomicBool,
    /// Number of upcoming conditional puts that are performed and then reported as failed.
    pub lose_answers: AtomicU32,
    /// True if the store becomes unavailable with the next lost response.
    pub down_after_lost: AtomicBool,
    /// Number of operations of any kind.
    pub operations: AtomicU32,
    /// Number of operations that are still performed before the store becomes unavailable.
    budget: Mutex<Option<u32>>,
    /// Random faults: their source, and the share of operations that fail.
    random: Mutex<Option<(StdRng, f64)>>,
    /// Number of random faults so far.
    pub random_faults: AtomicU32,
}

impl FaultyStore {
    /// Creates a store without faults over `inner`.
    pub fn over(inner: Arc<dyn ObjectStore>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            down: AtomicBool::new(false),
            lose_answers: AtomicU32::new(0),
            down_after_lost: AtomicBool::new(false),
            operations: AtomicU32::new(0),
            budget: Mutex::new(None),
            random: Mutex::new(None),
            random_faults: AtomicU32::new(0),
        })
    }

    /// Makes `share` of all operations fail from now on, and of the puts as many again after they took effect; 0.0 ends it.
    pub fn fail_randomly(&self, rng: StdRng, share: f64) {
        *self.random.lock() = (share > 0.0).then_some((rng, share));
    }

    /// Performs `operations` more, then becomes unavailable, as at a crash.
    pub fn fail_after(&self, operations: u32) {
        *self.budget.lock() = Some(operations);
    }

    /// Makes the store available again and ends [`Self::fail_after`].
    pub fn recover(&self) {
        *self.budget.lock() = None;
        self.down.store(false, Ordering::SeqCst);
    }

    fn check(&self) -> Result<()> {
        self.operations.fetch_add(1, Ordering::SeqCst);
        if let Some(left) = self.budget.lock().as_mut() {
            match left.checked_sub(1) {
                Some(less) => *left = less,
                None => self.down.store(true, Ordering::SeqCst),
            }
        }
        if self.down.load(Ordering::SeqCst) {
            return Err(fault("the store is unavailable"));
        }
        if self.draws_fault() { Err(fault("a random fault")) } else { Ok(()) }
    }

    fn draws_fault(&self) -> bool {
        let faulty = self.random.lock().as_mut().is_some_and(|(rng, share)| rng.random_bool(*share));
        if faulty {
            self.random_faults.fetch_add(1, Ordering::SeqCst);
        }
        faulty
    }
}

fn fault(what: &str) -> Error {
    Error::Generic { store: "FaultyStore", source: what.into() }
}

impl fmt::Display for FaultyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FaultyStore")
    }
}

#[async_trait]
impl ObjectStore for FaultyStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        self.check()?;
        let create = opts.mode == PutMode::Create;
        // A caller may be dropped before and after the operation.
        tokio::task::yield_now().await;
        let outcome = self.inner.put_opts(location, payload, opts).await?;
        tokio::task::yield_now().await;
        if self.draws_fault() {
            return Err(fault("a random fault, after the object was written"));
        }
        let lose = |n: u32| n.checked_sub(1);
        if create && self.lose_answers.fetch_update(Ordering::SeqCst, Ordering::SeqCst, lose).is_ok() {
            if self.down_after_lost.load(Ordering::SeqCst) {
                self.down.store(true, Ordering::SeqCst);
            }
            return Err(fault("the answer is lost"));
        }
        Ok(outcome)
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.check()?;
        self.inner.put_multipart_opts(location, opts).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.check()?;
        self.inner.get_opts(location, options).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.check()?;
        self.inner.get_ranges(location, ranges).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        match self.check() {
            Ok(()) => self.inner.delete_stream(locations),
            Err(e) => futures::stream::once(async { Err(e) }).boxed(),
        }
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        match self.check() {
            Ok(()) => self.inner.list(prefix),
            Err(e) => futures::stream::once(async { Err(e) }).boxed(),
        }
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.check()?;
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.check()?;
        self.inner.copy_opts(from, to, options).await
    }
}
