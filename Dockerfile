# Berth's images, each a target. Any builder reads this, with BuildKit or without:
#   docker build -t berth .                              operator and façade
#   docker build -t berth-agent --target agent .         the agent, which every VM pulls
#   docker build -t berth-volumes --target volumes .     rclone, which only VMs of jobs with volumes pull
# A base that has what a stage would make (node_modules, /out/<architecture>/rclone …) is used as it is: for builds without
# a network.
ARG BUILD_IMAGE=docker.io/library/node:24-trixie-slim
ARG GO_IMAGE=docker.io/library/golang:1.26-trixie
ARG TOOLS_IMAGE=docker.io/library/debian:trixie-slim
ARG RUNTIME_IMAGE=gcr.io/distroless/nodejs24-debian13:nonroot
# Of the same Debian as the tools and Node.js, whose programs are linked to its libraries.
ARG VM_RUNTIME_IMAGE=gcr.io/distroless/cc-debian13:nonroot

# The program is the same for every architecture: it is made once, on the builder's own.
FROM --platform=${BUILDPLATFORM:-linux/amd64} ${BUILD_IMAGE} AS program
WORKDIR /build
COPY package.json package-lock.json ./
RUN [ -d node_modules ] || npm ci --ignore-scripts --no-audit --no-fund
COPY . .
# The source maps are three quarters of the programs' size again; they are published with the release.
RUN node scripts/bundle.ts --out /program && rm /program/*.map /program/parts/*.map \
    && mkdir /agent && mv /program/agent.mjs /agent && cp /program/package.json /program/*LICENCES.txt /program/LICENSE /agent

# rclone of the version in go.mod. Go checks each part's source by go.sum. The builder makes it for every architecture.
FROM --platform=${BUILDPLATFORM:-linux/amd64} ${GO_IMAGE} AS rclone
ARG TARGETARCH
WORKDIR /build
COPY src/agent/volumes/rclone/ ./
RUN [ -x "/out/$TARGETARCH/rclone" ] || \
    CGO_ENABLED=0 GOARCH=$TARGETARCH go build -trimpath -ldflags="-s -w" -o "/out/$TARGETARCH/" .

# What mounts volumes: docs/data.md.
FROM ${TOOLS_IMAGE} AS tools
ARG TARGETARCH
# Of what is taken from here, the image has no package manager's records: the SBOM lists them from this stage.
ARG BUILDKIT_SBOM_SCAN_STAGE=true
RUN [ -x /usr/bin/fusermount3 -a -x /bin/busybox ] || { \
      apt-get update && apt-get install --yes --no-install-recommends fuse3 busybox-static; }
COPY --from=rclone /out/${TARGETARCH}/rclone /tools/usr/bin/rclone
RUN cd /tools/usr/bin && cp /usr/bin/fusermount3 /bin/busybox . \
    && ln -s fusermount3 fusermount && ln -s busybox sh && ln -s busybox cat

FROM ${VM_RUNTIME_IMAGE} AS volumes
LABEL org.opencontainers.image.title="Berth volumes" \
      org.opencontainers.image.description="Mounts the buckets of Berth's jobs by rclone's Docker volume driver." \
      org.opencontainers.image.source="https://github.com/berth-dev/berth" \
      org.opencontainers.image.licenses="MIT AND GPL-2.0-only"
COPY --from=tools /tools/ /
# The agent says `--user 0`: a mount needs rights that nobody else gets.
USER 65532:65532
ENTRYPOINT ["/usr/bin/rclone"]

FROM ${RUNTIME_IMAGE} AS nodejs

# A seventh of Node.js is names of its own functions, which only a debugger reads.
FROM ${TOOLS_IMAGE} AS stripped
RUN [ -x /usr/bin/strip ] || { apt-get update && apt-get install --yes --no-install-recommends binutils; }
COPY --from=nodejs /nodejs/bin/node /nodejs/bin/node
RUN strip --strip-unneeded /nodejs/bin/node

# Tools for people in a job's container, whose image may have none: docs/sessions.md.
FROM ${TOOLS_IMAGE} AS toolbox
# Of what is taken from here, the image has no package manager's records: the SBOM lists them from this stage.
ARG BUILDKIT_SBOM_SCAN_STAGE=true
RUN [ -x /bin/busybox ] || { apt-get update && apt-get install --yes --no-install-recommends busybox-static; }

# Each VM pulls it before its job can start, so it holds nothing else: docs/start-time.md.
FROM ${VM_RUNTIME_IMAGE} AS agent
LABEL org.opencontainers.image.title="Berth agent" \
      org.opencontainers.image.description="Runs a job of Berth on a VM." \
      org.opencontainers.image.source="https://github.com/berth-dev/berth" \
      org.opencontainers.image.licenses="Apache-2.0 AND GPL-2.0-only"
COPY --from=toolbox /bin/busybox /berth/busybox
COPY --from=stripped /nodejs/bin/node /nodejs/bin/node
COPY --from=program /agent/ /berth/
ENV NODE_ENV=production
USER 65532:65532
ENTRYPOINT ["/nodejs/bin/node", "/berth/agent.mjs"]

FROM nodejs
LABEL org.opencontainers.image.title="Berth" \
      org.opencontainers.image.description="Runs declarative container jobs on the cheapest cloud VM that fits." \
      org.opencontainers.image.source="https://github.com/berth-dev/berth" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=program /program/ /berth/
ENV NODE_ENV=production
# By number, so that Kubernetes can see that it isn't root.
USER 65532:65532
# By default V8 grows its space for young objects until operator and façade hold some 100 MiB more.
ENTRYPOINT ["/nodejs/bin/node", "--max-semi-space-size=8", "/berth/berth.mjs"]
