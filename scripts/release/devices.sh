# devices.sh ROOT NAMESPACES -- sourced in the mount namespace of a root: its /dev, and below systemd (with a network of
# its own) /sys, /run and cgroups too.
if [ -z "$2" ]; then
	mount --bind /dev "$1/dev"
	return
fi
mount -t tmpfs -o mode=0755 tmpfs "$1/dev"
for device in null:3 zero:5 full:7 random:8 urandom:9; do
	mknod -m 0666 "$1/dev/${device%:*}" c 1 "${device#*:}"
done
mknod -m 0666 "$1/dev/tty" c 5 0
mkdir "$1/dev/"{pts,shm}
mount -t tmpfs -o mode=1777 tmpfs "$1/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666,mode=0620,gid=5 devpts "$1/dev/pts"
ln -s pts/ptmx "$1/dev/ptmx"
mount -t sysfs sysfs "$1/sys"
mount -t cgroup2 cgroup2 "$1/sys/fs/cgroup"
mount -t tmpfs -o mode=0755 tmpfs "$1/run"
mount -t configfs configfs "$1/sys/kernel/config" 2>/dev/null || true # not in every kernel
mount --make-rshared "$1" # credentials of units are mounts, which come from processes of systemd's
