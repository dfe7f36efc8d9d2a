//! Messages of calls, as bytes and as events of `EventService`.

use std::collections::HashMap;

use bytes::{Buf, BufMut, Bytes};
use prost::Message;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

/// Form of the messages of a method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MessageForm {
    /// Events of `EventService`, whose payload is the message of the mapper.
    Event,
    /// The messages of the mapper.
    Raw,
}

/// Event of `EventService`.
#[derive(Clone, PartialEq, Message)]
struct ServiceEvent {
    #[prost(string, tag = "1")]
    payload: String,
    #[prost(map = "string, string", tag = "2")]
    headers: HashMap<String, String>,
}

impl MessageForm {
    /// Returns the message of a call.
    ///
    /// Errors: the payload cannot be in it.
    pub(super) fn encode(self, payload: &Bytes, headers: Vec<(String, String)>) -> Result<Bytes, String> {
        match self {
            Self::Raw => Ok(payload.clone()),
            Self::Event => match String::from_utf8(payload.to_vec()) {
                Ok(payload) => {
                    let headers = headers.into_iter().collect();
                    Ok(ServiceEvent { payload, headers }.encode_to_vec().into())
                }
                Err(_) => Err("the payload of EventService is text, and the message is no UTF-8".into()),
            },
        }
    }

    /// Returns the payload of a message, and its headers.
    ///
    /// Errors: the message is not an event.
    pub(super) fn decode(self, message: Bytes) -> Result<(Bytes, Vec<(String, String)>), String> {
        match self {
            Self::Raw => Ok((message, vec![])),
            Self::Event => match ServiceEvent::decode(message) {
                Ok(event) => Ok((event.payload.into(), event.headers.into_iter().collect())),
                Err(e) => Err(format!("the message is no event of EventService: {e}")),
            },
        }
    }
}

/// Leaves messages as they are.
#[derive(Debug, Clone, Copy)]
pub(super) struct RawCodec;

impl Codec for RawCodec {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for RawCodec {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        out.put(message);
        Ok(())
    }
}

impl Decoder for RawCodec {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_have_the_bytes_of_the_definition() {
        let headers = vec![("k".to_owned(), "v".to_owned())];
        let message = MessageForm::Event.encode(&Bytes::from_static(b"hi"), headers.clone()).unwrap();
        // field 1: "hi"; field 2: an entry with the fields 1: "k" and 2: "v"
        assert_eq!(&message[..], b"\x0a\x02hi\x12\x06\x0a\x01k\x12\x01v");
        assert_eq!(MessageForm::Event.decode(message).unwrap(), (Bytes::from_static(b"hi"), headers));
        for wrong in
            [&b"\x0a\x05hi"[..], b"\x0a\x02\xff\xfe", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"]
        {
            assert!(MessageForm::Event.decode(Bytes::copy_from_slice(wrong)).is_err(), "{wrong:?}");
        }
        assert!(MessageForm::Event.encode(&Bytes::from_static(b"\xff"), vec![]).is_err());
    }
}
