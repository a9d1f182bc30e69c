"""The text of --help."""

TEXT = """\
hostsync-credential: Microsoft Entra credentials for kubelet and kubectl

usage:
  hostsync-credential get-token --server-id ID [options]
  hostsync-credential token kubelogin --server-id ID [options]   (the same, kubelogin's spelling)
  hostsync-credential check [--no-gate] [options]
  hostsync-credential explain [options]
  hostsync-credential exec [--on-skew refuse|serve] -- PROGRAM [ARGUMENT...]
  hostsync-credential version

get-token is meant to be run by client-go (kubelet, kubectl) as an exec credential plugin. It
writes one ExecCredential object to stdout and nothing else. check asks for a fresh token past
the cache and prints "ok ..." without the token, or the cause of the failure. explain says what
get-token would do and why, and asks nobody. exec runs somebody else's plugin, which lies in a
slot of its own, once the release gate is open for it.

  --server-id ID           application id of the API server
  --login, -l MODE         msi: the machine's managed identity (default)
                           arc: the managed identity of a machine that Azure Arc connects
                           spn: a service principal, by secret or certificate
                           workloadidentity: by another issuer's token
msi and arc:
  --client-id ID           user-assigned identity by client id,
  --object-id ID             or by object id,
  --msi-resource-id ID       or by resource id (also --identity-resource-id);
                           none: the system-assigned identity
  --identity-endpoint URL  http://HOST[:PORT], loopback (msi: or 169.254.169.254) only: for tests
                           and local proxies
spn and workloadidentity:
  --client-id ID, --tenant-id ID (-t)
  --client-secret-file FILE            a file of mode 0600; or
  --client-secret-fd NUMBER              a descriptor that the caller opened; or
  --client-certificate FILE              PEM or PKCS#12 of mode 0600, with its key
  --client-certificate-password-file FILE
  --send-certificate-chain             send x5c, for subject name and issuer authentication
  --federated-token-file FILE          workloadidentity: the token
  --environment, -e CLOUD  AzurePublicCloud (default), AzureUSGovernment, AzureChinaCloud, ...
  --authority-host URL     https://HOST[:PORT]
  --ca-file FILE           certificates to trust instead of SSL_CERT_FILE or the system's
settings:
  A flag wins over the file, the file over the environment; a conflict is said on stderr.
  --config FILE            mode 0600; default /etc/hostsync/credential.toml, else what the host
                           of this machine shares in /var/lib/hostsync/credential, else none
  --no-config              no file
  --disable-environment-override   none of kubelogin's variables: AAD_LOGIN_METHOD,
                           AZURE_CLIENT_ID, AZURE_TENANT_ID, AZURE_CLIENT_SECRET,
                           AZURE_CLIENT_CERTIFICATE_PATH, AZURE_FEDERATED_TOKEN_FILE,
                           AZURE_AUTHORITY_HOST, AAD_SERVICE_PRINCIPAL_*
release gate:
  --on-skew refuse|serve   what to do when this shim is not the release the host selects and
                           waiting 5 s did not help. refuse (default): exit 3, no token.
                           serve: serve with a warning each time
  --no-gate                check only: test a release that is not selected yet
other:
  --log none|syslog|journal   one line about each run there, without secrets (default none; also
                           HOSTSYNC_CREDENTIAL_LOG)
  --cache-dir DIR          absolute; must be ours and 0700 (default /run/hostsync/credential)
  accepted from existing kubelogin stanzas and unused:
  --token-cache-dir, --timeout, --disable-instance-discovery

exit codes:
  0 done                           5 identity not found or denied
  2 usage or configuration         6 endpoint throttles or is being updated
  3 refused: release skew          7 malformed answer, not an identity endpoint
  4 endpoint unreachable, timeout  8 internal error

No run takes longer than 8 seconds. Example of a kubeconfig's user:
  exec:
    apiVersion: client.authentication.k8s.io/v1
    command: /usr/local/bin/hostsync-credential
    args: [get-token, --server-id, 6dae42f8-4368-4678-94ff-3960e28e3630]
    interactiveMode: Never
"""
