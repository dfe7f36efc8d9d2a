//! Cursors: handles of the documents that an operation found. They show one moment and copy nothing.

use std::marker::PhantomData;

use bson::RawDocument;
use serde::de::DeserializeOwned;
use tidemill_docs::DocBytes;

use super::core::decode;
use super::error::Result;
use super::session::ClientSession;

/// Documents that were found, decoded one after the other: an iterator of `Result<T>`.
///
/// All documents are those of the moment at which the operation ran; a cursor that is not read holds their memory. An error is that of
/// a document that has not the fields of `T`, and the next one can be read.
#[derive(Debug)]
pub struct Cursor<T> {
    documents: std::vec::IntoIter<DocBytes>,
    current: Option<DocBytes>,
    types: PhantomData<fn() -> T>,
}

impl<T> Cursor<T> {
    pub(super) fn new(documents: std::vec::IntoIter<DocBytes>) -> Self {
        Self { documents, current: None, types: PhantomData }
    }

    /// Goes to the next document. Returns whether there is one. It does not fail; a driver's does.
    pub fn advance(&mut self) -> Result<bool> {
        self.current = self.documents.next();
        Ok(self.current.is_some())
    }

    /// Returns the bytes of the document that [`Self::advance`] went to.
    ///
    /// # Panics
    ///
    /// If it has not been called, or has returned `false`.
    pub fn current(&self) -> &RawDocument {
        let document = self.current.as_deref().expect("advance() was called and returned true");
        RawDocument::from_bytes(document).unwrap_or_else(|_| unreachable!("a stored document is valid"))
    }

    /// Returns the document that [`Self::advance`] went to.
    ///
    /// # Panics
    ///
    /// As [`Self::current`].
    pub fn deserialize_current(&self) -> Result<T>
    where
        T: DeserializeOwned,
    {
        decode(self.current().as_bytes())
    }

    /// Returns whether documents are left.
    pub fn has_next(&self) -> bool {
        self.documents.len() > 0
    }

    /// Returns the same cursor with another type of documents.
    pub fn with_type<U>(self) -> Cursor<U> {
        Cursor { documents: self.documents, current: self.current, types: PhantomData }
    }
}

impl<T: DeserializeOwned> Iterator for Cursor<T> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Result<T>> {
        Some(decode(&self.documents.next()?))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.documents.size_hint()
    }
}

/// Documents that were found in the transaction of a session. As with a driver, reading them takes the session.
#[derive(Debug)]
pub struct SessionCursor<T>(Cursor<T>);

impl<T> SessionCursor<T> {
    pub(super) fn new(documents: std::vec::IntoIter<DocBytes>) -> Self {
        Self(Cursor::new(documents))
    }

    /// Goes to the next document, as [`Cursor::advance`] does.
    pub fn advance(&mut self, _session: &mut ClientSession) -> Result<bool> {
        self.0.advance()
    }

    /// Returns the bytes of the document that [`Self::advance`] went to.
    ///
    /// # Panics
    ///
    /// If it has not been called, or has returned `false`.
    pub fn current(&self) -> &RawDocument {
        self.0.current()
    }

    /// Returns the document that [`Self::advance`] went to.
    ///
    /// # Panics
    ///
    /// As [`Self::current`].
    pub fn deserialize_current(&self) -> Result<T>
    where
        T: DeserializeOwned,
    {
        self.0.deserialize_current()
    }

    /// Returns the same cursor with another type of documents.
    pub fn with_type<U>(self) -> SessionCursor<U> {
        SessionCursor(self.0.with_type())
    }
}

impl<T: DeserializeOwned> SessionCursor<T> {
    /// Returns the next document.
    pub fn next(&mut self, _session: &mut ClientSession) -> Option<Result<T>> {
        self.0.next()
    }

    /// Returns an iterator of the documents that are left.
    pub fn iter<'c>(&'c mut self, _session: &'c mut ClientSession) -> impl Iterator<Item = Result<T>> + 'c {
        &mut self.0
    }
}
