# What `debian`, `python` and `node` images are played by: Debian 13 with all three. ROOTFS is a tar of mmdebstrap's.
ARG ROOTFS
FROM rootfs:${ROOTFS}
ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
COPY *.crt /usr/local/share/ca-certificates/
RUN update-ca-certificates 2>/dev/null && \
    ln -s python3 /usr/bin/python && \
    rm -f /usr/lib/python3*/EXTERNALLY-MANAGED && \
    rm -rf /var/lib/apt/lists/*
CMD ["bash"]
