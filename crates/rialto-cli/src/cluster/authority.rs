//! [`Authority`]: what signs the certificates of a cluster's nodes.
//!
//! Its directory has the private key with which any node of the cluster can be made. No node needs it: an operator keeps it
//! apart from them, and has it there again for `init`.

use std::path::Path;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

use super::failed::Failed;
use super::files::{self, Readers};
use super::node_file::{authority_file, certificate_files};

/// An authority, with its private key.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
}

fn wrong(error: &rcgen::Error) -> Failed {
    Failed::failing(format_args!("making certificates: {error}"))
}

fn params(cluster: &str) -> Result<CertificateParams, Failed> {
    let mut params = CertificateParams::new([]).map_err(|error| wrong(&error))?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.distinguished_name.push(DnType::CommonName, format!("rialto cluster {cluster}"));
    Ok(params)
}

impl Authority {
    /// The authority of a cluster whose directory this is. It is made if there is none.
    pub fn open(directory: &Path, cluster: &str) -> Result<Authority, Failed> {
        files::make_directory(directory)?;
        let (certificate_file, key_file) = (directory.join("authority.pem"), directory.join("authority.key"));
        let params = params(cluster)?;
        // The certificate is written last: with it, both are there.
        if let Some(certificate) = files::read(&certificate_file)? {
            let unusable = |what: &dyn std::fmt::Display| {
                Failed::unusable(format_args!("{}: {what}", key_file.display()))
            };
            let key = files::read(&key_file)?.ok_or_else(|| unusable(&"the authority's key is missing"))?;
            let key = KeyPair::from_pem(&key).map_err(|error| unusable(&error))?;
            return Ok(Authority { issuer: Issuer::new(params, key), certificate });
        }
        let key = KeyPair::generate().map_err(|error| wrong(&error))?;
        let certificate = params.self_signed(&key).map_err(|error| wrong(&error))?.pem();
        files::write(&key_file, &key.serialize_pem(), Readers::Owner)?;
        files::write(&certificate_file, &certificate, Readers::All)?;
        Ok(Authority { issuer: Issuer::new(params, key), certificate })
    }

    /// The authority of a cluster whose directory this is, which is there.
    pub fn find(directory: &Path, cluster: &str) -> Result<Authority, Failed> {
        if files::read(&directory.join("authority.pem"))?.is_none() {
            return Err(Failed::unusable(format_args!(
                "{}: the cluster's authority is not there, which rialto cluster init has made; it signs the node's certificate",
                directory.display()
            )));
        }
        Authority::open(directory, cluster)
    }

    /// Makes a certificate for a node in its directory, unless it has one.
    pub fn certify(&self, directory: &Path, name: &str) -> Result<(), Failed> {
        let [certificate_file, key_file] = certificate_files(directory);
        if files::read(&certificate_file)?.is_some() {
            return Ok(());
        }
        let mut params = CertificateParams::new([name.to_owned()]).map_err(|error| wrong(&error))?;
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().map_err(|error| wrong(&error))?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(|error| wrong(&error))?;
        files::write(&authority_file(directory), &self.certificate, Readers::All)?;
        files::write(&key_file, &key.serialize_pem(), Readers::Owner)?;
        files::write(&certificate_file, &certificate.pem(), Readers::All)
    }
}
