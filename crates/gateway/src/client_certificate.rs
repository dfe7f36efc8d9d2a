//! Certificates with which clients prove who they are.

use tokio_rustls::rustls::client::verify_server_name;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::server::ParsedCertificate;
use x509_parser::extensions::GeneralName;

/// Certificate of a client, signed by an authority of its listener and valid at the handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificate(CertificateDer<'static>);

impl ClientCertificate {
    pub(crate) fn new(certificate: CertificateDer<'static>) -> Self {
        Self(certificate)
    }

    /// Returns the bytes of the certificate (DER).
    pub fn der(&self) -> &[u8] {
        &self.0
    }

    /// Returns whether the certificate is that of a name: a DNS name or an address of its alternative names, also by a wildcard.
    pub fn is_for(&self, name: &str) -> bool {
        let (Ok(parsed), Ok(name)) = (ParsedCertificate::try_from(&self.0), ServerName::try_from(name))
        else {
            return false;
        };
        verify_server_name(&parsed, &name).is_ok()
    }

    /// Returns the DNS names among its alternative names, for messages.
    pub fn names(&self) -> Vec<String> {
        let Ok((_, parsed)) = x509_parser::parse_x509_certificate(&self.0) else { return vec![] };
        let Ok(Some(names)) = parsed.subject_alternative_name() else { return vec![] };
        let dns_name = |name: &GeneralName<'_>| match name {
            GeneralName::DNSName(name) => Some((*name).to_owned()),
            _ => None,
        };
        names.value.general_names.iter().filter_map(dns_name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_for_its_alternative_names() {
        let names = ["node-1".to_owned(), "*.nodes.example".to_owned(), "127.0.0.1".to_owned()];
        let made = rcgen::generate_simple_self_signed(names).unwrap();
        let certificate = ClientCertificate::new(made.cert.der().clone());
        assert_eq!(certificate.names(), ["node-1", "*.nodes.example"]);
        for (name, expected) in [
            ("node-1", true),
            ("node-2", false),
            ("a.nodes.example", true),
            ("nodes.example", false),
            ("127.0.0.1", true),
            ("", false),
        ] {
            assert_eq!(certificate.is_for(name), expected, "{name}");
        }
        let damaged = ClientCertificate::new(CertificateDer::from(b"nothing".to_vec()));
        assert!(!damaged.is_for("node-1") && damaged.names().is_empty());
    }
}
