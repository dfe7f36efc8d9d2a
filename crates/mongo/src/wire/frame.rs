//! Messages of the wire protocol: `OP_MSG`, `OP_COMPRESSED` around it, and `OP_QUERY` for the first `isMaster`.
//!
//! ```text
//! header   length i32, request id i32, response to i32, operation i32
//! OP_MSG   flags u32, sections, [CRC-32C of everything before]
//!          section 0: a document; section 1: length i32, name, documents
//! ```

use std::io::{Read, Write};

use bson::RawDocument;
use bytes::Bytes;

use crate::error::{Code, CommandError, Result};

/// Maximum bytes of a message.
pub(crate) const MESSAGE_BYTES_MAX: usize = 48_000_000;
/// Bytes of the header.
pub(crate) const HEADER_BYTES: usize = 16;
/// Documents of one sequence, which is MongoDB's limit too. Without it a message of empty documents would need six times its size,
/// as each document has a handle.
pub(crate) const SEQUENCE_DOCUMENTS_MAX: usize = 100_000;
/// Sequences of one message; `bulkWrite` has most of them, which is two.
const SEQUENCES_MAX: usize = 16;

const OP_REPLY: i32 = 1;
const OP_QUERY: i32 = 2004;
const OP_COMPRESSED: i32 = 2012;
const OP_MSG: i32 = 2013;

const CHECKSUM_PRESENT: u32 = 1;
const MORE_TO_COME: u32 = 1 << 1;
const EXHAUST_ALLOWED: u32 = 1 << 16;
/// Flags below this bit must be known.
const REQUIRED_FLAGS: u32 = 0xFFFF;

/// Compression of messages, by its number on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compressor {
    None = 0,
    Snappy = 1,
    Zlib = 2,
    Zstd = 3,
}

impl Compressor {
    /// Those that are offered, with their names.
    pub const OFFERED: [(&'static str, Self); 3] =
        [("snappy", Self::Snappy), ("zstd", Self::Zstd), ("zlib", Self::Zlib)];

    fn of(id: u8) -> Option<Self> {
        [Self::None, Self::Snappy, Self::Zlib, Self::Zstd].into_iter().find(|c| *c as u8 == id)
    }
}

/// Head of a message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Header {
    /// Bytes of the whole message.
    pub length: usize,
    pub request_id: i32,
    op: i32,
}

/// A request.
#[derive(Debug)]
pub(crate) struct Request {
    pub id: i32,
    /// The command: its first element is its name.
    pub body: Bytes,
    /// Lists of documents that are not in the body, by name.
    pub sequences: Vec<(String, Vec<Bytes>)>,
    /// True if the client waits for a reply.
    pub wants_reply: bool,
    /// True if the client accepts several replies to this one request.
    pub exhaust_allowed: bool,
    /// Compressor of the request, and of its reply.
    pub compressor: Compressor,
    /// True if it came as `OP_QUERY` and is answered by `OP_REPLY`.
    legacy: bool,
}

impl Header {
    /// Reads a header. Errors: the length is impossible.
    pub fn read(bytes: &[u8; HEADER_BYTES]) -> Result<Self> {
        let number = |at: usize| i32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let length = usize::try_from(number(0)).unwrap_or(0);
        if !(HEADER_BYTES..=MESSAGE_BYTES_MAX).contains(&length) {
            let message =
                format!("a message of {} bytes: expected {HEADER_BYTES} to {MESSAGE_BYTES_MAX}", number(0));
            return Err(CommandError::new(Code::ProtocolError, message));
        }
        Ok(Self { length, request_id: number(4), op: number(12) })
    }
}

impl Request {
    /// Returns whether it came in the form of the first command of a connection, which names no database.
    pub fn is_legacy(&self) -> bool {
        self.legacy
    }

    /// Creates the request for a command that is part of another one.
    pub fn inner(body: bson::RawDocumentBuf) -> Self {
        Self {
            id: 0,
            body: body.into_bytes().into(),
            sequences: Vec::new(),
            wants_reply: true,
            exhaust_allowed: false,
            compressor: Compressor::None,
            legacy: false,
        }
    }

    /// Parses the bytes after the header. `header_bytes` are those of the header, for the checksum. A compressed message has at most
    /// `length_max` bytes without compression.
    ///
    /// Errors: the message is malformed; the connection cannot go on.
    pub fn parse(
        header: Header,
        header_bytes: &[u8; HEADER_BYTES],
        content: Bytes,
        length_max: usize,
    ) -> Result<Self> {
        match header.op {
            OP_MSG => Self::message(header.request_id, Some(header_bytes), content, Compressor::None),
            OP_COMPRESSED => {
                let mut cursor = Cursor::new(&content);
                let (op, length, compressor) = (cursor.i32()?, cursor.i32()?, cursor.u8()?);
                let compressor = Compressor::of(compressor).ok_or_else(|| malformed("unknown compressor"))?;
                let length = usize::try_from(length).ok().filter(|n| *n <= MESSAGE_BYTES_MAX.min(length_max));
                let length = length.ok_or_else(|| malformed("the uncompressed size is too large"))?;
                if op != OP_MSG {
                    return Err(malformed(&format!("operation {op} in a compressed message")));
                }
                let inner = decompress(compressor, cursor.rest(), length)?;
                Self::message(header.request_id, None, inner.into(), compressor)
            }
            OP_QUERY => Self::query(header.request_id, &content),
            op => Err(malformed(&format!(
                "operation {op} is not part of the protocol of MongoDB 5.1 and later: use a newer driver"
            ))),
        }
    }

    fn message(
        id: i32,
        header: Option<&[u8; HEADER_BYTES]>,
        content: Bytes,
        compressor: Compressor,
    ) -> Result<Self> {
        let mut cursor = Cursor::new(&content);
        let flags = cursor.i32()?.cast_unsigned();
        if flags & REQUIRED_FLAGS & !(CHECKSUM_PRESENT | MORE_TO_COME) != 0 {
            return Err(malformed(&format!("unknown flags {flags:#x}")));
        }
        let mut end = content.len();
        if flags & CHECKSUM_PRESENT != 0 {
            end = end.checked_sub(4).filter(|end| *end >= 4).ok_or_else(|| malformed("no checksum"))?;
            let stored =
                u32::from_le_bytes([content[end], content[end + 1], content[end + 2], content[end + 3]]);
            // a compressed message contains no further header, so none is counted
            let found = header.map(|header| crc32c::crc32c_append(crc32c::crc32c(header), &content[..end]));
            if found.is_some_and(|found| found != stored) {
                return Err(malformed("the checksum does not match"));
            }
        }
        let (mut body, mut sequences) = (None, Vec::<(String, Vec<Bytes>)>::new());
        while cursor.at < end {
            match cursor.u8()? {
                0 => {
                    let document = cursor.document(end)?;
                    if body.replace(content.slice_ref(document)).is_some() {
                        return Err(malformed("two bodies"));
                    }
                }
                1 => {
                    let start = cursor.at;
                    let length = usize::try_from(cursor.i32()?).unwrap_or(0);
                    let sequence_end = start.checked_add(length).filter(|stop| *stop <= end && length >= 5);
                    let sequence_end =
                        sequence_end.ok_or_else(|| malformed("a sequence of an impossible length"))?;
                    let name = cursor.text(sequence_end)?.to_owned();
                    // which of two lists is meant is not known
                    if sequences.iter().any(|(known, _)| *known == name) {
                        return Err(malformed(&format!("two sequences `{}`", name.escape_debug())));
                    }
                    if sequences.len() == SEQUENCES_MAX {
                        return Err(malformed(&format!("more than {SEQUENCES_MAX} sequences")));
                    }
                    let mut documents = Vec::new();
                    while cursor.at < sequence_end {
                        if documents.len() == SEQUENCE_DOCUMENTS_MAX {
                            return Err(malformed(&format!(
                                "more than {SEQUENCE_DOCUMENTS_MAX} documents in a sequence"
                            )));
                        }
                        documents.push(content.slice_ref(cursor.document(sequence_end)?));
                    }
                    sequences.push((name, documents));
                }
                kind => return Err(malformed(&format!("section of unknown kind {kind}"))),
            }
        }
        let body = body.ok_or_else(|| malformed("no body"))?;
        let wants_reply = flags & MORE_TO_COME == 0;
        let exhaust_allowed = flags & EXHAUST_ALLOWED != 0;
        Ok(Self { id, body, sequences, wants_reply, exhaust_allowed, compressor, legacy: false })
    }

    fn query(id: i32, content: &Bytes) -> Result<Self> {
        let mut cursor = Cursor::new(content);
        cursor.i32()?;
        let collection = cursor.text(content.len())?;
        if !collection.ends_with(".$cmd") {
            return Err(malformed("OP_QUERY is answered for commands only: use a newer driver"));
        }
        // documents to skip and to return
        cursor.i32()?;
        cursor.i32()?;
        let body = content.slice_ref(cursor.document(content.len())?);
        Ok(Self {
            id,
            body,
            sequences: vec![],
            wants_reply: true,
            exhaust_allowed: false,
            compressor: Compressor::None,
            legacy: true,
        })
    }

    /// Returns the bytes that the request needs besides those that arrived, as it was compressed.
    pub fn unpacked_bytes(&self) -> usize {
        if self.compressor == Compressor::None {
            return 0;
        }
        let documents = self.sequences.iter().flat_map(|(_, documents)| documents);
        self.body.len() + documents.map(Bytes::len).sum::<usize>()
    }

    /// Encodes the reply as a message. `more` says that another one follows without a request.
    pub fn encode_reply(&self, reply: &RawDocument, more: bool) -> Result<Vec<u8>> {
        let document = reply.as_bytes();
        // such as the errors of 100,000 statements with large keys; clients would end the connection
        if document.len() + 64 > MESSAGE_BYTES_MAX {
            let message = format!(
                "the reply has {} bytes, and a message has at most {MESSAGE_BYTES_MAX}: send fewer statements, or ask for less",
                document.len()
            );
            return self.encode_reply(&CommandError::new(Code::ReplyTooLarge, message).reply(), more);
        }
        // room for the header, which is written when the length is known
        let mut message = vec![0; HEADER_BYTES];
        message.reserve_exact(document.len() + 64);
        if self.legacy {
            // flags, cursor, first, number of documents
            message.extend_from_slice(&8_i32.to_le_bytes());
            message.extend_from_slice(&0_i64.to_le_bytes());
            message.extend_from_slice(&0_i32.to_le_bytes());
            message.extend_from_slice(&1_i32.to_le_bytes());
            message.extend_from_slice(document);
            return Ok(self.framed(OP_REPLY, message));
        }
        let flags = if more { MORE_TO_COME } else { 0 };
        message.extend_from_slice(&flags.to_le_bytes());
        message.push(0);
        message.extend_from_slice(document);
        if self.compressor == Compressor::None {
            return Ok(self.framed(OP_MSG, message));
        }
        let content = &message[HEADER_BYTES..];
        let mut outer = vec![0; HEADER_BYTES];
        outer.extend_from_slice(&OP_MSG.to_le_bytes());
        outer.extend_from_slice(&(content.len() as i32).to_le_bytes());
        outer.push(self.compressor as u8);
        compress(self.compressor, content, &mut outer)?;
        Ok(self.framed(OP_COMPRESSED, outer))
    }

    /// Writes the header of a message, for which its first bytes are left free.
    fn framed(&self, op: i32, mut message: Vec<u8>) -> Vec<u8> {
        let numbers = [message.len() as i32, self.id, self.id, op];
        for (place, number) in message.chunks_exact_mut(4).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        message
    }
}

fn malformed(what: &str) -> CommandError {
    CommandError::new(Code::ProtocolError, format!("malformed message: {what}"))
}

fn compress(compressor: Compressor, content: &[u8], out: &mut Vec<u8>) -> Result<()> {
    let failed =
        |e: &dyn std::fmt::Display| CommandError::new(Code::InternalError, format!("compression: {e}"));
    match compressor {
        Compressor::None => out.extend_from_slice(content),
        Compressor::Snappy => {
            let packed = snap::raw::Encoder::new().compress_vec(content).map_err(|e| failed(&e))?;
            out.extend_from_slice(&packed);
        }
        Compressor::Zlib => {
            let mut encoder = flate2::write::ZlibEncoder::new(out, flate2::Compression::default());
            encoder.write_all(content).and_then(|()| encoder.finish().map(|_| ())).map_err(|e| failed(&e))?;
        }
        Compressor::Zstd => {
            zstd::stream::copy_encode(content, &mut *out, zstd::DEFAULT_COMPRESSION_LEVEL)
                .map_err(|e| failed(&e))?;
        }
    }
    Ok(())
}

/// Decompresses to exactly `length` bytes; never more, whatever the message contains.
fn decompress(compressor: Compressor, packed: &[u8], length: usize) -> Result<Vec<u8>> {
    let wrong = || malformed("the compressed content is damaged or has another size than stated");
    let mut out = Vec::with_capacity(length.min(1 << 20));
    let most = length as u64 + 1;
    match compressor {
        Compressor::None => out.extend_from_slice(packed),
        Compressor::Snappy => {
            if snap::raw::decompress_len(packed).map_err(|_| wrong())? != length {
                return Err(wrong());
            }
            out = snap::raw::Decoder::new().decompress_vec(packed).map_err(|_| wrong())?;
        }
        Compressor::Zlib => {
            flate2::read::ZlibDecoder::new(packed).take(most).read_to_end(&mut out).map_err(|_| wrong())?;
        }
        Compressor::Zstd => {
            // straight into the result: a stream would reserve the window that the content asks for, up to 128 MiB
            out = zstd::bulk::decompress(packed, length).map_err(|_| wrong())?;
        }
    }
    if out.len() == length { Ok(out) } else { Err(wrong()) }
}

/// Reads a message from front to back.
struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    fn take(&mut self, count: usize, end: usize) -> Result<&'a [u8]> {
        let stop = self.at.checked_add(count).filter(|stop| *stop <= end.min(self.bytes.len()));
        let stop = stop.ok_or_else(|| malformed("it ends too early"))?;
        let taken = &self.bytes[self.at..stop];
        self.at = stop;
        Ok(taken)
    }

    fn u8(&mut self) -> Result<u8> {
        Ok(self.take(1, self.bytes.len())?[0])
    }

    fn i32(&mut self) -> Result<i32> {
        let bytes = self.take(4, self.bytes.len())?;
        Ok(i32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    /// Reads a text that ends with NUL before `end`.
    fn text(&mut self, end: usize) -> Result<&'a str> {
        let left = &self.bytes[self.at..end.min(self.bytes.len()).max(self.at)];
        let length = left.iter().position(|b| *b == 0).ok_or_else(|| malformed("a name without an end"))?;
        let text = std::str::from_utf8(&left[..length]).map_err(|_| malformed("a name is not UTF-8"))?;
        self.at += length + 1;
        Ok(text)
    }

    /// Reads the bytes of a document, which ends before `end`. Only its length and its last byte are checked.
    fn document(&mut self, end: usize) -> Result<&'a [u8]> {
        let length = self.bytes.get(self.at..self.at + 4).ok_or_else(|| malformed("it ends too early"))?;
        let length = i32::from_le_bytes([length[0], length[1], length[2], length[3]]);
        let length = usize::try_from(length).ok().filter(|n| *n >= 5);
        let document =
            self.take(length.ok_or_else(|| malformed("a document of an impossible length"))?, end)?;
        if document.last() != Some(&0) {
            return Err(malformed("a document without an end"));
        }
        Ok(document)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(op: i32, content: Vec<u8>, length_max: usize) -> Result<Request> {
        let mut head = [0; HEADER_BYTES];
        head[..4].copy_from_slice(&((HEADER_BYTES + content.len()) as i32).to_le_bytes());
        head[12..].copy_from_slice(&op.to_le_bytes());
        Request::parse(Header::read(&head)?, &head, content.into(), length_max)
    }

    /// A message of 46 KB that is 47 MB when it is unpacked: without a password, no client gets the server to
    /// unpack it.
    #[test]
    fn a_decompression_bomb_is_refused_before_it_is_unpacked() {
        let mut content = OP_MSG.to_le_bytes().to_vec();
        content.extend_from_slice(&47_000_000_i32.to_le_bytes());
        content.push(Compressor::Zlib as u8);
        compress(Compressor::Zlib, &vec![0; 47_000_000], &mut content).unwrap();
        assert!(content.len() < 64 << 10, "{} bytes", content.len());
        let error = parse(OP_COMPRESSED, content, 64 << 10).unwrap_err();
        assert!(error.message.contains("the uncompressed size is too large"), "{}", error.message);
    }

    /// It is unpacked to the size that it states and one byte more.
    #[test]
    fn a_message_is_not_unpacked_beyond_its_stated_size() {
        for compressor in [Compressor::Snappy, Compressor::Zlib, Compressor::Zstd] {
            let mut packed = Vec::new();
            compress(compressor, &vec![0; 47_000_000], &mut packed).unwrap();
            assert!(decompress(compressor, &packed, 1000).is_err());
        }
    }

    #[test]
    fn a_reply_beyond_the_size_of_a_message_becomes_an_error() {
        let request = Request::inner(bson::rawdoc! { "ping": 1 });
        let large = bson::rawdoc! { "x": "y".repeat(MESSAGE_BYTES_MAX) };
        let bytes = request.encode_reply(&large, false).unwrap();
        let reply = RawDocument::from_bytes(&bytes[HEADER_BYTES + 5..]).unwrap();
        assert_eq!(reply.get_i32("code").ok(), Some(13548));
    }
}
