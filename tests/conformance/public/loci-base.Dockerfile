# What LOCI's Dockerfile.base makes, from Debian instead of Ubuntu.
FROM standin
RUN apt-get update && \
    apt-get install -y --no-install-recommends bind9-host git libpython3.13 netbase patch sudo && \
    rm -rf /var/lib/apt/lists/* && \
    printf 'DISTRIB_ID=Debian\nDISTRIB_CODENAME=trixie\n' >/etc/lsb-release
