import { dump } from "js-yaml"
import type { Launch } from "../apis/launch.ts"
import { bootConfig, renderUserData } from "./messages.ts"
import { type BootConfig, GATEWAY_PATH } from "./protocol.ts"

/** Most user data that EC2 takes, bytes before base64 (GCP and Azure take more). */
export const USER_DATA_LIMIT_BYTES = 16 * 1024

/** What the agent's files and the dead-man's deadline are kept in, on the VM. */
export const STATE_DIR = "/var/lib/berth"

/** The agent's own part of it, in its container under the same path. */
export const AGENT_DATA_DIR = `${STATE_DIR}/agent`

/**
 * The systems that VMs boot: Amazon's ECS-optimized Linux 2023, Ubuntu, also as Azure and Google publish it for GPUs, and
 * Google's Container-Optimized OS. All have cloud-init, systemd, curl, and a Docker engine or a package with one.
 */
export type VmSystem = "ecs" | "ubuntu" | "cos"

/** An upgrade at night restarts the engine, and with it the container. */
const UBUNTU_UPGRADES = ["apt-daily.timer", "apt-daily-upgrade.timer", "unattended-upgrades.service"]

/**
 * Differences between the systems. `packages` install an engine where the image has none. Azure's Ubuntu for GPUs has one,
 * Google's has NVIDIA's driver and toolkit only. Container-Optimized OS is no way around that: its engine gives no GPU to
 * a container that asks for one as Docker's API has it
 * (https://cloud.google.com/container-optimized-os/docs/how-to/run-gpus).
 */
const SYSTEMS: Record<VmSystem, { packages: string[]; masked: string[] }> = {
  // ECS' own agent would look for a cluster for ever.
  ecs: { packages: [], masked: ["ecs.service"] },
  ubuntu: { packages: ["docker.io", "iptables"], masked: UBUNTU_UPGRADES },
  cos: { packages: [], masked: ["update-engine.service"] },
}

/**
 * Where clouds serve a VM's metadata, and with it the VM's own credentials: the link-local range (169.254.169.254
 * everywhere; 169.254.170.2 and .23 for AWS' containers) and Azure's host (168.63.129.16).
 */
const METADATA_ADDRESSES = ["169.254.0.0/16", "168.63.129.16/32"]

/** Some of these addresses are the VM's name server as well (169.254.169.254 on GCP, 168.63.129.16 on Azure). */
const DNS_PORT = 53

/** Time that the engine, and then the GPUs, have to answer after the boot, seconds. */
const READY_SECONDS = 30

/** Between the attempts to get an engine by apt, whose mirrors and locks fail now and then, seconds. */
const APT_PAUSES = [5, 10]

/** After the order to shut down, until the power goes whatever still hangs, seconds. */
const HARD_OFF_SECONDS = 120

/** A reference as the distribution project's grammar has it: nothing that a shell or systemd would read otherwise. */
const IMAGE = /^[A-Za-z0-9][-A-Za-z0-9._/:@]{0,511}$/

/** The system of each cloud's VMs, without and with GPUs: what the clouds' folders have them boot. */
const SYSTEM_OF: Readonly<Record<string, { cpu: VmSystem; gpu: VmSystem }>> = {
  aws: { cpu: "ecs", gpu: "ecs" },
  azure: { cpu: "ubuntu", gpu: "ubuntu" },
  gcp: { cpu: "cos", gpu: "ubuntu" },
}

/**
 * What a Launch's VM starts with on its cloud: cloud-init, or on the local cloud just the config. Pure. Throws as
 * `renderCloudInit` does, and TypeError when the Launch names no image for the agent of a public cloud's VM.
 */
export function userDataOf(launch: Pick<Launch, "metadata" | "spec">, bootstrapKey: Uint8Array): string {
  const { offer, agentImage } = launch.spec
  const config = bootConfig(launch, bootstrapKey)
  const gpu = offer.gpu !== undefined
  const system = SYSTEM_OF[offer.cloud]?.[gpu ? "gpu" : "cpu"]
  if (system === undefined) return renderUserData(config)
  if (agentImage !== undefined) return renderCloudInit(config, { system, agentImage, gpu })
  throw new TypeError("no image for the agent: give the operator --agent-image (BERTH_AGENT_IMAGE)")
}

export interface CloudInitOptions {
  system: VmSystem
  /** Berth's published image (Dockerfile), which has the agent in a file of its own. */
  agentImage: string
  /** True if the VM is useless without a GPU. Default: false. */
  gpu?: boolean
}

/**
 * User data for cloud-init, as `#cloud-config`: a pure function, equal configs make equal bytes. The VM ends at
 * `lifetimeSeconds` after its first boot, whatever happens on it; containers don't reach the metadata service; the
 * agent runs as a service, and the VM powers off when it ends. A VM without an engine, or without the GPU that it is
 * wanted for, says so to the gateway and powers off. Throws TypeError for an image that is no image
 * reference, RangeError for user data that no EC2 VM could have.
 */
export function renderCloudInit(config: BootConfig, options: CloudInitOptions): string {
  const { system, agentImage } = options
  if (!IMAGE.test(agentImage)) {
    throw new TypeError(`agentImage ${JSON.stringify(agentImage)} is no image reference, such as registry/berth:1.0`)
  }
  const { masked } = SYSTEMS[system]
  const file = (path: string, content: string) => ({ path, permissions: "0600", content })
  const document = {
    // Before anything else, and at every boot: whatever goes wrong after it, this VM ends.
    bootcmd: [
      ["/bin/sh", "-c", armDeadMan(config.lifetimeSeconds)],
      ["systemctl", "mask", "--now", "--no-block", ...masked],
    ],
    write_files: [
      file(`${AGENT_DATA_DIR}/user-data.json`, renderUserData({ ...config, image: agentImage })),
      file(`${STATE_DIR}/${REPORT_FILE}`, reportRequest(config)),
      file(`${STATE_DIR}/${START_SCRIPT}`, startScript(config, options)),
      file("/etc/systemd/system/berth-agent.service", AGENT_UNIT),
    ],
    runcmd: [
      ["systemctl", "daemon-reload"],
      ["systemctl", "enable", "--now", "--no-block", "berth-agent.service"],
    ],
  }
  const text = `#cloud-config\n${dump(document, { lineWidth: -1, noRefs: true, indent: 1 })}`
  const bytes = Buffer.byteLength(text)
  if (bytes <= USER_DATA_LIMIT_BYTES) return text
  throw new RangeError(
    `user data has ${bytes} bytes, and EC2 takes ${USER_DATA_LIMIT_BYTES}: ` +
      `gatewayCa has ${config.gatewayCa?.length ?? 0} of them; give only the CA's own certificate`,
  )
}

/**
 * Arms the dead-man: a timer of systemd's, outside of the agent and of Docker. The deadline is kept, so that a reboot
 * doesn't begin a new lifetime; the units are made anew at each boot. A VM that can't arm it ends at once.
 */
function armDeadMan(lifetimeSeconds: number): string {
  return `arm() (
  set -eu
  mkdir -p ${STATE_DIR} /run/systemd/system
  cd ${STATE_DIR}
  now=$(date +%s)
  if [ ! -s deadline ]; then
    echo $((now + ${lifetimeSeconds})) > deadline.new
    sync
    mv deadline.new deadline
  fi
  left=$(($(cat deadline) - now))
  [ $left -gt 0 ] || left=0
  cat > /run/systemd/system/berth-dead-man.service <<'END'
[Unit]
Description=The end of this VM's lifetime
DefaultDependencies=no
[Service]
Type=oneshot
ExecStart=/bin/sh -c 'shutdown -P now || systemctl poweroff --no-block; sleep ${HARD_OFF_SECONDS}; systemctl poweroff --force --force'
END
  cat > /run/systemd/system/berth-dead-man.timer <<END
[Unit]
Description=The lifetime of this VM
DefaultDependencies=no
[Timer]
OnActiveSec=$left
AccuracySec=1s
END
  systemctl daemon-reload
  systemctl start --no-block berth-dead-man.timer
)
arm || systemctl poweroff --no-block
`
}

/** Settings with which curl reports a boot failure. They keep the token out of the arguments of a process. */
const REPORT_FILE = "boot-failure.curl"
const START_SCRIPT = "start.sh"
const CA_FILE = "ca.pem"

function reportRequest({ launch, gatewayUrl, gatewayCa, bootstrapToken }: BootConfig): string {
  const settings = [
    ["url", `${gatewayUrl}${GATEWAY_PATH}/launches/${launch}/boot-failure`],
    ["header", `Authorization: Bearer ${bootstrapToken}`],
    ["header", "Content-Type: application/json"],
    ["data", "@-"],
    ...(gatewayCa === undefined ? [] : [["cacert", CA_FILE]]),
  ]
  return settings.map(([name, value]) => `${name} = ${JSON.stringify(value)}\n`).join("")
}

/**
 * Runs the agent once all that it needs is there: an engine, the GPUs, the firewall. What is missing is said to the gateway,
 * and the VM powers off: nothing can come of it, and it is billed. Where an agent has been before, there was all of
 * it: then the unit just tries again.
 */
function startScript({ gatewayCa }: BootConfig, { system, agentImage, gpu = false }: CloudInitOptions): string {
  const { packages } = SYSTEMS[system]
  const lines = [
    FAIL_FUNCTION,
    ...(gatewayCa === undefined ? [] : [WRITE_CA]),
    ...(packages.length === 0 ? [] : [installScript(packages, gpu)]),
    `ready docker version || fail EngineUnavailable "no Docker engine answered"`,
    ...(gpu ? [GPU_CHECK] : []),
    firewallScript(),
    "docker rm --force berth-agent > /dev/null 2>&1",
    `${runAgent(agentImage)} && systemctl poweroff --no-block`,
  ]
  return `${lines.join("\n")}\n`
}

const FAIL_FUNCTION = `cd ${STATE_DIR}
fail() {
  echo "$1: $2: $why"
  [ ! -e agent/keys.json ] || exit 1
  why=$(echo "$why" | tail -n 1 | tr -cd '[:alnum:] .,:;()/_-' | cut -c -500)
  printf '{"reason":"%s","message":"%s: %s"}' $1 "$2" "$why" |
    curl -sf -m 10 --retry 3 --retry-all-errors -K ${REPORT_FILE}
  systemctl poweroff --no-block
  exit 0
}
ready() {
  end=$(($(date +%s) + ${READY_SECONDS}))
  until why=$("$@" 2>&1); do
    # 127: there is no such program, and none will come.
    [ $? -ne 127 ] && [ $(date +%s) -lt $end ] || return 1
    sleep 1
  done
}`

/** The PEM out of the agent's own file, in which line ends are escaped. */
const WRITE_CA = `printf %b "$(sed -n 's/^  "gatewayCa": "\\(.*\\)",$/\\1/p' agent/user-data.json)" > ${CA_FILE}`

/**
 * An engine out of Ubuntu's own packages, and for GPUs NVIDIA's runtime in it
 * (https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html). Not by cloud-init, which
 * tries but once.
 */
function installScript(packages: readonly string[], gpu: boolean): string {
  const runtime = "nvidia-ctk runtime configure --runtime=docker && systemctl restart docker"
  return `if ! command -v docker > /dev/null; then
  export DEBIAN_FRONTEND=noninteractive
  for pause in ${APT_PAUSES.join(" ")} 0; do
    apt-get update
    apt-get -o DPkg::Lock::Timeout=60 install -y ${packages.join(" ")} && break
    sleep $pause
  done${gpu ? `\n  ${runtime}` : ""}
fi`
}

/** NVIDIA's tool ends well also where it finds none. */
const GPU_CHECK = `gpus() {
  found=$(timeout 20 nvidia-smi -L 2>&1)
  echo "$found"
  case $found in *'GPU 0:'*) ;; *) return 1 ;; esac
}
ready gpus || fail GPUUnavailable "nvidia-smi showed no GPU"`

/** Docker keeps what is in its chain DOCKER-USER and asks it first for whatever a container sends. Each rule goes before the last. */
function firewallScript(): string {
  return `iptables -w -n -L DOCKER-USER > /dev/null 2>&1 || iptables -w -N DOCKER-USER
rule() {
  iptables -w -C DOCKER-USER "$@" 2> /dev/null || why=$(iptables -w -I DOCKER-USER "$@" 2>&1) ||
    fail FirewallUnavailable "iptables keeps no container from the metadata service"
}
for address in ${METADATA_ADDRESSES.join(" ")}; do
  rule -d $address -j REJECT
  for protocol in udp tcp; do rule -d $address -p $protocol --dport ${DNS_PORT} -j RETURN; done
done`
}

/** The agent in the host's network, since it asks the metadata service for notices of preemption. */
function runAgent(agentImage: string): string {
  return [
    // The engine's socket is root's, while the image's own user is nobody. The whole program would take twice the memory.
    "docker run --rm --name berth-agent --user 0 --entrypoint /nodejs/bin/node --network host --log-driver none",
    "--volume /var/run/docker.sock:/var/run/docker.sock",
    `--volume ${AGENT_DATA_DIR}:${AGENT_DATA_DIR}`,
    // The sockets of volume drivers, which the engine and the agent speak to.
    "--volume /run/docker/plugins:/run/docker/plugins",
    `${agentImage} /berth/agent.mjs agent --runtime docker --data-dir ${AGENT_DATA_DIR}`,
  ].join(" ")
}

/**
 * The agent ends in order only when its VM has nothing more to do; otherwise it is started again and goes on where it was.
 * It doesn't require the engine's unit, which may come only by the script.
 */
const AGENT_UNIT = `[Unit]
Description=Berth's agent
Wants=network-online.target docker.service
After=network-online.target docker.service
StartLimitIntervalSec=0
[Service]
ExecStart=/bin/sh ${STATE_DIR}/${START_SCRIPT}
Restart=on-failure
RestartSec=5
TimeoutStopSec=90
[Install]
WantedBy=multi-user.target
`
