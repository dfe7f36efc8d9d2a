//! Heads of messages, and acknowledgements: what they say and how they are written.

use tidemill_types::Timestamp;

use super::Encoding;

/// Answer of a receiver to a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Acknowledgement {
    /// `AA`, `AE`, `AR`, `CA`, `CE` or `CR`.
    pub code: String,
    /// Control id of the message.
    pub control_id: String,
    pub text: String,
}

impl Acknowledgement {
    pub(super) fn is_positive(&self) -> bool {
        matches!(self.code.as_str(), "AA" | "CA")
    }
}

/// Fields of the head of a message that an acknowledgement needs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct MessageHead {
    pub sender: [String; 2],
    pub receiver: [String; 2],
    /// Such as `ADT^A01`.
    pub message_type: String,
    pub control_id: String,
    pub processing_id: String,
    pub version: String,
}

/// Returns the head of a message.
///
/// Errors: it has none.
pub(super) fn head(message: &str) -> Result<MessageHead, String> {
    let message = message.trim_start();
    match message.starts_with('<') {
        true => head_of_xml(message),
        false => head_of_er7(message),
    }
}

fn head_of_er7(message: &str) -> Result<MessageHead, String> {
    let segment = message.split(['\r', '\n']).next().unwrap_or_default();
    let rest = segment.strip_prefix("MSH").ok_or("expected a message that begins with the segment `MSH`")?;
    let separator = rest.chars().next().filter(|c| !c.is_alphanumeric());
    let separator = separator.ok_or("expected a separator of fields behind `MSH`")?;
    // the separator itself is field 1, so the fields behind it begin with number 2
    let fields: Vec<&str> = rest.split(separator).skip(1).collect();
    let field = |number: usize| fields.get(number - 2).map(|text| (*text).to_owned()).unwrap_or_default();
    Ok(MessageHead {
        sender: [field(3), field(4)],
        receiver: [field(5), field(6)],
        message_type: field(9),
        control_id: field(10),
        processing_id: field(11),
        version: field(12),
    })
}

fn head_of_xml(message: &str) -> Result<MessageHead, String> {
    if !message.contains("<MSH>") {
        return Err("expected an XML message with the element `MSH`".into());
    }
    let text = |name: &str| element(message, name).unwrap_or_default();
    Ok(MessageHead {
        sender: [text("MSH.3"), text("MSH.4")],
        receiver: [text("MSH.5"), text("MSH.6")],
        message_type: text("MSH.9"),
        control_id: text("MSH.10"),
        processing_id: text("MSH.11"),
        version: text("MSH.12"),
    })
}

/// Returns the texts in an element, those of its parts joined by `^`.
fn element(xml: &str, name: &str) -> Option<String> {
    let (_, behind) = xml.split_once(&format!("<{name}>"))?;
    let (inside, _) = behind.split_once(&format!("</{name}>"))?;
    let mut parts = Vec::new();
    for piece in inside.split('<') {
        let text = piece.split_once('>').map_or(piece, |(_, text)| text).trim();
        if !text.is_empty() {
            parts.push(
                text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&"),
            );
        }
    }
    Some(parts.join("^"))
}

/// Returns an acknowledgement of a message.
pub(super) fn write(
    head: &MessageHead,
    code: &str,
    text: &str,
    now: Timestamp,
    encoding: Encoding,
) -> String {
    let time: String = now.to_string().chars().filter(char::is_ascii_digit).take(14).collect();
    let event = head.message_type.split('^').nth(1).unwrap_or_default();
    let ([sender, facility], [receiver, receiver_facility]) = (&head.sender, &head.receiver);
    let or = |text: &str, default: &'static str| {
        if text.is_empty() { default.to_owned() } else { text.to_owned() }
    };
    let (processing, version) = (or(&head.processing_id, "P"), or(&head.version, "2.5"));
    let id = &head.control_id;
    match encoding {
        Encoding::Er7 => {
            let text = escaped_er7(text);
            let text = if text.is_empty() { text } else { format!("|{text}") };
            format!(
                "MSH|^~\\&|{receiver}|{receiver_facility}|{sender}|{facility}|{time}||ACK^{event}^ACK|{id}|{processing}|{version}\r\
                 MSA|{code}|{id}{text}\r"
            )
        }
        Encoding::Xml => {
            let xml = escaped_xml;
            let part = |number: u8, name: &str, text: &str| match text.is_empty() {
                true => String::new(),
                false => format!("<MSH.{number}><{name}>{}</{name}></MSH.{number}>", xml(text)),
            };
            let text = if text.is_empty() { String::new() } else { format!("<MSA.3>{}</MSA.3>", xml(text)) };
            format!(
                "<?xml version=\"1.0\" encoding=\"UTF-8\"?><ACK xmlns=\"urn:hl7-org:v2xml\"><MSH><MSH.1>|</MSH.1>\
                 <MSH.2>^~\\&amp;</MSH.2>{}{}{}{}<MSH.7><TS.1>{time}</TS.1></MSH.7><MSH.9><MSG.1>ACK</MSG.1></MSH.9>\
                 <MSH.10>{id}</MSH.10>{}{}</MSH><MSA><MSA.1>{code}</MSA.1><MSA.2>{id}</MSA.2>{text}</MSA></ACK>",
                part(3, "HD.1", receiver),
                part(4, "HD.1", receiver_facility),
                part(5, "HD.1", sender),
                part(6, "HD.1", facility),
                part(11, "PT.1", &processing),
                part(12, "VID.1", &version),
                id = xml(id),
            )
        }
    }
}

fn escaped_er7(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\E\\"),
            '|' => out.push_str("\\F\\"),
            '^' => out.push_str("\\S\\"),
            '&' => out.push_str("\\T\\"),
            '~' => out.push_str("\\R\\"),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

fn escaped_xml(text: &str) -> String {
    let plain: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    plain.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Reads an acknowledgement.
///
/// Errors: the answer is not an acknowledgement.
pub(super) fn read(answer: &str) -> Result<Acknowledgement, String> {
    let answer = answer.trim();
    let found = match answer.starts_with('<') {
        true => element(answer, "MSA.1").map(|code| Acknowledgement {
            code,
            control_id: element(answer, "MSA.2").unwrap_or_default(),
            text: element(answer, "MSA.3").unwrap_or_default(),
        }),
        false => answer.split(['\r', '\n']).find_map(|segment| {
            let rest = segment.strip_prefix("MSA")?;
            let fields: Vec<&str> = rest.split(rest.chars().next()?).skip(1).collect();
            let field =
                |index: usize| fields.get(index).map(|text| text.trim().to_owned()).unwrap_or_default();
            Some(Acknowledgement { code: field(0), control_id: field(1), text: field(2) })
        }),
    };
    found.ok_or_else(|| "the answer is no acknowledgement: it has no segment `MSA`".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADT: &str =
        "MSH|^~\\&|ADT1|MCM|LAB|HOSP|198808181126||ADT^A01^ADT_A01|MSG00001|P|2.4\rPID|||1||Jones^Eve\r";

    #[test]
    fn acknowledgements_answer_the_head_of_their_message() {
        let head = head(ADT).unwrap();
        let now = Timestamp::parse("2026-01-02T03:04:05Z").unwrap();
        let good = write(&head, "AA", "", now, Encoding::Er7);
        assert_eq!(
            good,
            "MSH|^~\\&|LAB|HOSP|ADT1|MCM|20260102030405||ACK^A01^ACK|MSG00001|P|2.4\rMSA|AA|MSG00001\r"
        );
        let bad = write(&head, "AE", "a|b\nc", now, Encoding::Er7);
        assert!(bad.ends_with("MSA|AE|MSG00001|a\\F\\b c\r"), "{bad}");
        for (encoding, code, text) in [
            (Encoding::Er7, "AA", ""),
            (Encoding::Xml, "AA", ""),
            (Encoding::Xml, "AR", "x < y & z"),
            (Encoding::Er7, "AR", "x"),
        ] {
            let read = read(&write(&head, code, text, now, encoding)).unwrap();
            let expected =
                Acknowledgement { code: code.into(), control_id: "MSG00001".into(), text: text.into() };
            assert_eq!(read, expected);
            assert_eq!(read.is_positive(), code == "AA");
        }
    }

    #[test]
    fn heads_of_xml_are_read() {
        let xml = "<ADT_A01><MSH><MSH.1>|</MSH.1><MSH.3><HD.1>A&amp;B</HD.1></MSH.3>\
                   <MSH.9><MSG.1>ADT</MSG.1> <MSG.2>A01</MSG.2></MSH.9><MSH.10>7</MSH.10></MSH></ADT_A01>";
        let head = head(xml).unwrap();
        assert_eq!(
            (head.sender[0].as_str(), head.message_type.as_str(), head.control_id.as_str()),
            ("A&B", "ADT^A01", "7")
        );
    }

    #[test]
    fn what_is_no_message_is_refused() {
        for text in ["", "PID|1", "MSH", "MSHx", "<a/>"] {
            assert!(head(text).is_err(), "{text}");
        }
        assert!(read("MSH|^~\\&|").is_err() && read("<ACK/>").is_err());
        assert_eq!(head("MSH|").unwrap(), MessageHead::default());
    }
}
