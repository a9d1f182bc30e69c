"""The text of --help."""

TEXT = """\
hostsync-credential: credentials for kubelet and kubectl from an Azure managed identity

usage:
  hostsync-credential get-token --server-id ID [options]
  hostsync-credential token kubelogin --server-id ID [options]   (the same, kubelogin's spelling)
  hostsync-credential check --server-id ID [--no-gate] [options]
  hostsync-credential version

get-token is meant to be run by client-go (kubelet, kubectl) as an exec credential plugin. It
writes one ExecCredential object to stdout and nothing else. check asks for a fresh token past
the cache and prints "ok ..." without the token, or the cause of the failure.

identity:
  --server-id ID           application id of the API server
  --login, -l MODE         msi: the machine's managed identity (default; the only mode so far)
  --client-id ID           user-assigned identity by client id,
  --object-id ID             or by object id,
  --msi-resource-id ID       or by resource id (also --identity-resource-id);
                           none: the system-assigned identity
environment:
  AAD_LOGIN_METHOD, AZURE_CLIENT_ID, AAD_SERVICE_PRINCIPAL_CLIENT_ID stand in for flags that are
  not given. A flag always wins, and a conflict is said on stderr.
  --disable-environment-override   ignore these variables
release gate:
  --on-skew refuse|serve   what to do when this shim is not the release the host selects and
                           waiting 5 s did not help. refuse (default): exit 3, no token.
                           serve: serve with a warning each time
  --no-gate                check only: test a release that is not selected yet
other:
  --cache-dir DIR          absolute; must be ours and 0700 (default /run/hostsync/credential)
  --identity-endpoint URL  http://HOST[:PORT], loopback or 169.254.169.254 only: for tests and
                           local proxies
  accepted from existing kubelogin stanzas and unused for msi:
  --environment/-e, --tenant-id/-t, --authority-host, --token-cache-dir, --timeout,
  --disable-instance-discovery

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
