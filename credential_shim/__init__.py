"""hostsync-credential: the kubelet exec-credential plugin, standard library only."""
