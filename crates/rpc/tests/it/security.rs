//! Nodes that do not belong together, and certificates.

use std::path::PathBuf;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tempfile::TempDir;
use tidemill_rpc::{
    CallError, CertificateFiles, NodeIdentity, NodeSettings, PeerClient, RpcFrontEnd, Secret, Security,
};
use tidemill_types::ErrorKind;

use crate::logs;
use crate::nodes::{ECHO, IDENTITY, Node, TestHandler, client, payload, request, settings, until};

/// An authority, and the files of nodes that it has signed.
struct Authority {
    dir: TempDir,
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { dir: tempfile::tempdir().unwrap(), pem, issuer: Issuer::new(params, key) }
    }

    /// Writes the files of a node, in place of those that it has.
    fn write(&self, to: &Files, name: &str) {
        let key = KeyPair::generate().unwrap();
        let certificate =
            CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, &self.issuer).unwrap();
        std::fs::write(&to.certificate, certificate.pem()).unwrap();
        std::fs::write(&to.key, key.serialize_pem()).unwrap();
        std::fs::write(&to.authorities, &self.pem).unwrap();
    }

    /// Returns the files of a node of this name.
    fn files(&self, name: &str) -> Files {
        let path = |kind: &str| self.dir.path().join(format!("{name}-{kind}.pem"));
        let files =
            Files { certificate: path("certificate"), key: path("key"), authorities: path("authorities") };
        self.write(&files, name);
        files
    }
}

struct Files {
    certificate: PathBuf,
    key: PathBuf,
    authorities: PathBuf,
}

impl Files {
    fn security(&self) -> Security {
        Security::Certificates(CertificateFiles::new(&self.certificate, &self.key, &self.authorities))
    }

    fn settings(&self, node: &str) -> NodeSettings {
        NodeSettings { security: self.security(), ..settings(node) }
    }
}

/// Asserts that a call is not executed because one of the nodes refuses the other one, and that the error has these texts.
async fn assert_refused(peer: &PeerClient, kind: ErrorKind, texts: &[&str]) {
    let error = peer.call(request(ECHO, "")).await.unwrap_err();
    assert!(matches!(error, CallError::NotSent(_)), "{error:?}");
    assert_eq!(error.kind(), kind, "{error}");
    let text = error.to_string();
    assert!(texts.iter().all(|part| text.contains(part)), "{text}\nexpected: {texts:?}");
    // the log of the node that calls
    until(|| logs::has_line(&["a node cannot be called", texts[0]])).await;
}

/// Waits for a line in the log of the node that is called.
async fn wait_for_log(texts: &[&str]) {
    until(|| logs::has_line(texts)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_do_not_belong_together_are_told_why() {
    let node = Node::start(settings("hub")).await;
    let identity = |cluster_id: &str, node: &str| NodeIdentity {
        cluster_id: cluster_id.into(),
        node: node.into(),
        incarnation: 1,
    };
    let other_cluster = NodeSettings { identity: identity("c2", "stray"), ..settings("stray") };
    let text = "node `hub` is of cluster `c`, node `stray` of cluster `c2`";
    assert_refused(
        &node.client(other_cluster),
        ErrorKind::Forbidden,
        &[text, "start node `stray` with the cluster id `c`"],
    )
    .await;
    wait_for_log(&["a client was refused as a node", text]).await;

    for (protocols, range) in [(4..=9, "4 to 9"), (0..=0, "0 to 0")] {
        let other = NodeSettings { protocols, ..settings("future") };
        let text =
            format!("node `hub` has protocols 1 to 3, node `future` {range}: they have none in common");
        assert_refused(&node.client(other), ErrorKind::Forbidden, &[&text, "upgrade the older node"]).await;
        wait_for_log(&["a client was refused as a node", &text]).await;
    }
    // ranges that overlap
    let newer = NodeSettings { protocols: 2..=9, ..settings("newer") };
    assert_eq!(node.client(newer).call(request(IDENTITY, "")).await.unwrap(), payload("newer 7 3 9 3"));

    let text = "node `lost` looks for node `spoke`, and found node `hub`";
    assert_refused(&client(settings("lost"), "spoke", &node.address), ErrorKind::Forbidden, &[text]).await;
    wait_for_log(&["a client was refused as a node", text]).await;

    let text = "two nodes have the name `hub`, or node `hub` calls itself";
    assert_refused(&node.client(settings("hub")), ErrorKind::Forbidden, &[text]).await;
    wait_for_log(&["a client was refused as a node", text]).await;

    let strange = NodeSettings { identity: identity("c\n\u{1b}[2J", "forger"), ..settings("forger") };
    let error = node.client(strange).call(request(ECHO, "")).await.unwrap_err();
    assert!(error.to_string().contains("of cluster `c\\n\\u{1b}[2J`"), "{error}");
    assert_eq!(node.handler.begun(), 1, "no other call came to the handler");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_secret_is_refused_by_both_sides() {
    let node = Node::start(settings("keeper")).await;
    let other = NodeSettings {
        security: Security::Secret(Secret::new(*b"another secret!!").unwrap()),
        ..settings("guesser")
    };
    let peer = node.client(other);
    assert_refused(
        &peer,
        ErrorKind::Forbidden,
        &["it does not have the secret of node `guesser`", "the same one"],
    )
    .await;
    wait_for_log(&["a client was refused", "node `guesser` and node `keeper` do not have the same secret"])
        .await;
    // calls do not hurry the next attempt, so that a refused node costs little
    let connections = node.connections();
    for _ in 0..10_000 {
        assert_eq!(peer.call(request(ECHO, "")).await.unwrap_err().kind(), ErrorKind::Forbidden);
    }
    assert!(node.connections() < connections + 1000, "{} connections", node.connections() - connections);
    assert_eq!(node.handler.begun(), 0);
    assert!(!logs::has_line(&["another secret!!"]) && !logs::has_line(&["0123456789abcdef"]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn secrets_are_for_this_machine_only() {
    let front_end =
        RpcFrontEnd::new(settings("b").into(), std::sync::Arc::new(TestHandler::default())).unwrap();
    let error = front_end.listen(([0, 0, 0, 0], 0).into()).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("0.0.0.0:0 is not an address of this machine only"), "{error}");
    let error = client(settings("a"), "b", "192.0.2.1:9").call(request(ECHO, "")).await.unwrap_err();
    assert_eq!((error.kind(), error.was_sent()), (ErrorKind::Invalid, false));
    assert!(error.to_string().contains("192.0.2.1:9 is not an address of this machine only"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_prove_their_names_by_certificates() {
    let authority = Authority::new("cluster");
    let node = Node::start(authority.files("b").settings("b")).await;
    let peer = node.client(authority.files("a").settings("a"));
    assert_eq!(peer.call(request(IDENTITY, "")).await.unwrap(), payload("a 7 3 9 3"));
    let large = vec![3; 3 << 20];
    assert_eq!(peer.call(request(ECHO, large.clone())).await.unwrap(), payload(large));

    // a node that calls itself as another one
    let text = "node `c` calls itself so, and its certificate is for `a`";
    let forger = node.client(authority.files("a").settings("c"));
    assert_refused(&forger, ErrorKind::Forbidden, &[text, "`DNS:c` among its alternative names"]).await;
    wait_for_log(&["a client was refused as a node", text]).await;
    // another node at the address
    let text = "its certificate is that of another name";
    let astray = client(authority.files("a").settings("a"), "d", &node.address);
    assert_refused(&astray, ErrorKind::Forbidden, &[text, "`DNS:d`"]).await;
    // a name that no certificate can prove
    let error = PeerClient::new(
        std::sync::Arc::new(authority.files("a").settings("node 1")),
        "b",
        &node.address,
        tokio::runtime::Handle::current(),
    );
    assert!(error.unwrap_err().to_string().contains("it has to be a DNS name"));
    assert_eq!(node.handler.begun(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_of_another_authority_are_refused_by_either_side() {
    // one of another name, and one that claims to be the right one
    for name in ["other", "cluster"] {
        certificates_of_another_authority(name).await;
    }
}

async fn certificates_of_another_authority(name: &str) {
    let (ours, theirs) = (Authority::new("cluster"), Authority::new(name));
    let expected = if name == "cluster" { "BadSignature" } else { "UnknownIssuer" };
    let node = Node::start(ours.files("certified").settings("certified")).await;
    // the node that calls does not trust the one that is called
    let stranger = node.client(theirs.files("a").settings("a"));
    assert_refused(
        &stranger,
        ErrorKind::Forbidden,
        &["its certificate is not signed by an authority of", expected],
    )
    .await;
    wait_for_log(&["a client that does not speak TLS", "received fatal alert"]).await;
    // the node that is called does not trust the one that calls
    let mixed = theirs.files("a");
    std::fs::write(&mixed.authorities, &ours.pem).unwrap();
    let peer = node.client(mixed.settings("a"));
    assert_refused(
        &peer,
        ErrorKind::Forbidden,
        &["it refuses the certificate of node `a`, which is not signed by an authority that it knows"],
    )
    .await;
    wait_for_log(&["a client that does not speak TLS", expected]).await;
    // the next connection uses the files of that time
    ours.write(&mixed, "a");
    let called = async {
        while let Err(error) = peer.call(request(ECHO, "x")).await {
            assert!(!error.was_sent(), "{error}");
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(crate::nodes::PATIENCE, called).await.unwrap();
    // files that cannot be used
    std::fs::remove_file(&mixed.key).unwrap();
    let broken = node.client(mixed.settings("a"));
    assert_refused(&broken, ErrorKind::Invalid, &["a-key.pem", "cannot read"]).await;
    assert_eq!(node.handler.begun(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_with_secrets_and_nodes_with_certificates_do_not_come_together() {
    let authority = Authority::new("cluster");
    let certified = Node::start(authority.files("certified").settings("certified")).await;
    let sharing = Node::start(settings("sharing")).await;
    let text = "it ended the connection before it proved which node it is";
    assert_refused(&certified.client(settings("a")), ErrorKind::Unavailable, &[text, "shared secret"]).await;
    wait_for_log(&["a client that does not speak TLS"]).await;
    let peer = sharing.client(authority.files("a").settings("a"));
    let error = peer.call(request(ECHO, "")).await.unwrap_err();
    assert!(!error.was_sent() && error.kind() == ErrorKind::Unavailable, "{error:?}");
    assert!(error.to_string().contains("TLS"), "{error}");
    wait_for_log(&["it does not speak HTTP/2 as nodes do"]).await;
    assert_eq!((certified.handler.begun(), sharing.handler.begun()), (0, 0));
}
