import { dump } from "js-yaml"
import type { Launch } from "../apis/launch.ts"
import { nvidiaGpusOf } from "../apis/offer.ts"
import { bootConfig, renderUserData } from "./messages.ts"
import { type BootConfig, CONSOLE_MARK, CONSOLE_OK, GATEWAY_PATH } from "./protocol.ts"

/** Maximum user data of EC2, bytes before base64. GCP and Azure accept more. */
export const USER_DATA_LIMIT_BYTES = 16 * 1024

/** Folder on the VM for the agent's files and the deadline of the VM's lifetime. */
export const STATE_DIR = "/var/lib/berth"

/** Folder of the agent's own data, in its container under the same path. */
export const AGENT_DATA_DIR = `${STATE_DIR}/agent`

/**
 * Operating systems of VMs: Amazon's ECS-optimized Linux 2023, Ubuntu, and Google's Container-Optimized OS. Ubuntu
 * includes the images that Azure and Google publish for GPUs. All have cloud-init, systemd, curl, and a Docker engine
 * or a package with one.
 */
export type VmSystem = "ecs" | "ubuntu" | "cos"

/** Units that upgrade Ubuntu. An upgrade at night restarts the engine, and with it the container. */
const UBUNTU_UPGRADES = ["apt-daily.timer", "apt-daily-upgrade.timer", "unattended-upgrades.service"]

/**
 * Differences between the systems. `packages` install an engine if the image has none. Azure's Ubuntu for GPUs has one.
 * Google's has NVIDIA's driver and toolkit only. Container-Optimized OS can't replace it: its engine gives no GPU to a
 * container that requests one through Docker's API
 * (https://cloud.google.com/container-optimized-os/docs/how-to/run-gpus).
 */
const SYSTEMS: Record<VmSystem, { packages: string[]; masked: string[] }> = {
  // ECS' own agent would look for a cluster forever.
  ecs: { packages: [], masked: ["ecs.service"] },
  ubuntu: { packages: ["docker.io", "iptables"], masked: UBUNTU_UPGRADES },
  cos: { packages: [], masked: ["update-engine.service"] },
}

/**
 * Addresses where clouds serve a VM's metadata, and with it the VM's own credentials. They are the link-local range
 * (169.254.169.254 everywhere; 169.254.170.2 and .23 for AWS' containers) and Azure's host (168.63.129.16).
 */
const METADATA_ADDRESSES = ["169.254.0.0/16", "168.63.129.16/32"]

/** The same address of AWS in IPv6. It is no name server. */
const METADATA_ADDRESS_V6 = "fd00:ec2::254"

/**
 * Port that stays open: some of these addresses are the VM's name server as well (169.254.169.254 on GCP, 168.63.129.16
 * on Azure).
 */
const DNS_PORT = 53

/** Time that the engine, and then the GPUs, have to answer after the boot, seconds. */
const READY_SECONDS = 30

/**
 * Time for pulls of the agent's image, seconds. It is shorter than the boot deadline, so that the VM reports the cause
 * before Berth deletes the VM.
 */
const PULL_SECONDS = 240

/**
 * Time that a VM still tries to reach the gateway after it has written on its console that it can't, seconds. It is longer
 * than a restart of the gateway, and ends before the boot deadline. Then the VM powers off.
 */
const GATEWAY_SECONDS = 270

/** Delays between attempts to install an engine by apt, whose mirrors and locks sometimes fail, seconds. */
const APT_PAUSES = [5, 10]

/** Delay after the order to shut down until the power is cut, even if something still hangs, seconds. */
const HARD_OFF_SECONDS = 120

/**
 * Image reference by the grammar of the distribution project. It has no character that is special to a shell or
 * systemd.
 */
const IMAGE = /^[A-Za-z0-9][-A-Za-z0-9._/:@]{0,511}$/

/** Operating system of each cloud's VMs, without and with GPUs. The clouds' folders boot these systems. */
const SYSTEM_OF: Readonly<Record<string, { cpu: VmSystem; gpu: VmSystem }>> = {
  aws: { cpu: "ecs", gpu: "ecs" },
  azure: { cpu: "ubuntu", gpu: "ubuntu" },
  gcp: { cpu: "cos", gpu: "ubuntu" },
}

/**
 * Returns the user data of a Launch's VM on its cloud: cloud-init, or on the local cloud only the config. Pure.
 * @throws TypeError if the Launch has no agent image and its cloud needs one; errors of `renderCloudInit`
 */
export function userDataOf(launch: Pick<Launch, "metadata" | "spec">, bootstrapKey: Uint8Array): string {
  const { offer, agentImage } = launch.spec
  const config = bootConfig(launch, bootstrapKey)
  const gpus = nvidiaGpusOf(offer)
  const gpu = gpus !== undefined
  const system = SYSTEM_OF[offer.cloud]?.[gpu ? "gpu" : "cpu"]
  if (system === undefined) return renderUserData(config)
  if (agentImage !== undefined) {
    return renderCloudInit(config, { system, agentImage, gpu, fraction: gpu && gpus.count < 1 })
  }
  throw new TypeError("no image for the agent: set --agent-image (BERTH_AGENT_IMAGE) of the operator")
}

export interface CloudInitOptions {
  system: VmSystem
  /** Berth's published image (Dockerfile), which has the agent in its own file. */
  agentImage: string
  /** True if the VM is useless without a GPU. Default: false. */
  gpu?: boolean
  /** True if the VM has a fraction of a GPU. Default: false. */
  fraction?: boolean
}

/**
 * Renders user data for cloud-init, as `#cloud-config`. Pure: equal configs give equal bytes. The VM ends
 * `lifetimeSeconds` after its first boot, even after failures on it. Containers can't reach the metadata service. The
 * agent runs as a service, and the VM powers off when the agent ends. If the engine or a required GPU is missing, the
 * VM reports that to the gateway and powers off. Without a way to the gateway, it reports on its console.
 * @throws TypeError if the image reference is not valid
 * @throws RangeError if the user data is too long for EC2
 */
export function renderCloudInit(config: BootConfig, options: CloudInitOptions): string {
  const { system, agentImage } = options
  if (!IMAGE.test(agentImage)) {
    throw new TypeError(
      `agentImage ${JSON.stringify(agentImage)} is not an image reference, such as registry/berth:1.0`,
    )
  }
  const { masked } = SYSTEMS[system]
  const secret = (path: string, content: string) => ({ path, permissions: "0600", content })
  const document = {
    // First, and at every boot: this VM must end even if a later step fails.
    bootcmd: [
      ["/bin/sh", "-c", armDeadMan(config.lifetimeSeconds)],
      ["systemctl", "mask", "--now", "--no-block", ...masked],
    ],
    write_files: [
      secret(`${AGENT_DATA_DIR}/user-data.json`, renderUserData({ ...config, image: agentImage })),
      secret(`${STATE_DIR}/${REPORT_FILE}`, reportRequest(config)),
      { path: `${STATE_DIR}/${START_SCRIPT}`, content: startScript(config, options) },
      { path: "/etc/systemd/system/berth-agent.service", content: AGENT_UNIT },
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
 * Returns a script that arms the dead-man switch: a systemd timer, independent of the agent and of Docker. The deadline
 * is stored, so that a reboot doesn't begin a new lifetime. The units are created again at each boot. A VM that can't
 * arm the switch ends at once.
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
DefaultDependencies=no
[Service]
Type=oneshot
ExecStart=/bin/sh -c 'shutdown -P now || systemctl poweroff --no-block; sleep ${HARD_OFF_SECONDS}; systemctl poweroff --force --force'
END
  cat > /run/systemd/system/berth-dead-man.timer <<END
[Unit]
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

/** Node.js in Berth's image. */
const NODE = "/nodejs/bin/node"

/** Settings with which curl reports a boot failure. They keep the token out of a process's arguments. */
const REPORT_FILE = "report.curl"
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
 * Returns a script that runs the agent once the engine, the GPUs and the firewall are ready. If one is missing, the
 * script reports that to the gateway or on the console, and the billed but useless VM powers off. If an agent has run on this disk
 * before, nothing was missing then, so the unit just tries again.
 */
function startScript(
  { gatewayCa }: BootConfig,
  { system, agentImage, gpu = false, fraction = false }: CloudInitOptions,
): string {
  const { packages } = SYSTEMS[system]
  const lines = [
    FAIL_FUNCTION,
    ...(fraction ? [OVERCOMMIT] : []),
    ...(gatewayCa === undefined ? [] : [WRITE_CA]),
    GATEWAY_CHECK,
    ...(packages.length === 0 ? [] : [installScript(packages, gpu)]),
    `ready ${READY_SECONDS} docker version || fail EngineUnavailable "no Docker engine answered"`,
    ...(gpu ? [GPU_CHECK] : []),
    firewallScript(),
    pullScript(agentImage),
    "docker rm -f berth-agent > /dev/null 2>&1",
    `${runAgent()} && systemctl poweroff --no-block`,
  ]
  return `${lines.join("\n")}\n`
}

/**
 * `fail` reports a failure to the gateway, or else on the console, and powers off. `ready` waits for a command to succeed,
 * for some seconds. After exit code 127 there is no such program, and none will come.
 */
const FAIL_FUNCTION = `cd ${STATE_DIR}
explain() {
  why=$(echo "$why" | tail -n 1 | tr -cd '[:alnum:] .,:;()/_-' | cut -c -500)
  failure=$(printf '{"reason":"%s","message":"%s: %s"}' $1 "$2" "$why")
}
console() { printf '\\n${CONSOLE_MARK} %s\\n' "$1" > /dev/console; }
fail() {
  echo "$1: $2: $why"
  [ ! -e agent/keys.json ] || exit 1
  explain $1 "$2"
  printf %s "$failure" | curl -sf -m 10 --retry 3 --retry-all-errors -K ${REPORT_FILE} || console "$failure"
  systemctl poweroff --no-block
  exit 0
}
ready() {
  end=$(($(date +%s) + $1))
  shift
  until why=$("$@" 2>&1); do
    [ $? -ne 127 ] && [ $(date +%s) -lt $end ] || return 1
    sleep 1
  done
}`

/** Extracts the PEM from the agent's own file, in which line ends are escaped. */
const WRITE_CA = `printf %b "$(sed -n 's/^  "gatewayCa": "\\(.*\\)",$/\\1/p' agent/user-data.json)" > ${CA_FILE}`

/**
 * Looks for a way to the gateway by a GET without a body: any answer of a server whose certificate is right will do.
 * Without a way, this VM can only use its console. A VM whose agent has run had a way, and its agent decides then.
 */
const GATEWAY_CHECK = `reach() { curl -sSm 10 -X GET -o /dev/null -K ${REPORT_FILE} < /dev/null; }
if [ ! -e agent/keys.json ] && command -v curl > /dev/null && ! ready ${READY_SECONDS} reach; then
  set -- GatewayUnreachable "the VM found no way to the gateway"
  explain "$@"
  console "$failure"
  ready ${GATEWAY_SECONDS} reach || fail "$@"
  console ${CONSOLE_OK}
fi`

/**
 * Returns a script that installs an engine from Ubuntu's packages, and for GPUs NVIDIA's runtime in it
 * (https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html). cloud-init could
 * install packages too, but tries only once.
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

/**
 * Lets NVIDIA's runtime reserve more memory than the smallest machines have
 * (https://github.com/aws/amazon-ecs-ami#memory-overcommit-fix-for-g6flarge-instance-type).
 */
const OVERCOMMIT = "sysctl -qw vm.overcommit_memory=1"

/** Checks for a GPU. NVIDIA's tool exits with 0 also if it finds none. */
const GPU_CHECK = `gpus() {
  found=$(timeout 20 nvidia-smi -L 2>&1)
  echo "$found"
  case $found in *'GPU 0:'*) ;; *) return 1 ;; esac
}
ready ${READY_SECONDS} gpus || fail GPUUnavailable "nvidia-smi showed no GPU"`

/**
 * Returns a script that sets the firewall's rules. Docker keeps the rules of its chain DOCKER-USER, and applies them
 * first to all packets of containers. Each rule is inserted before the last one. For IPv6 not every engine has that
 * chain. A system without ip6tables or IPv6 gives containers no IPv6 either.
 */
function firewallScript(): string {
  return `iptables -w -N DOCKER-USER 2> /dev/null
rule() {
  $ip -w -C $chain "$@" 2> /dev/null || why=$($ip -w -I $chain "$@" 2>&1) ||
    fail FirewallUnavailable "$ip keeps no container from the metadata service"
}
ip=iptables chain=DOCKER-USER
for address in ${METADATA_ADDRESSES.join(" ")}; do
  rule -d $address -j REJECT
  for p in udp tcp; do rule -d $address -p $p --dport ${DNS_PORT} -j RETURN; done
done
ip=ip6tables chain=FORWARD
$ip -w -nL > /dev/null 2>&1 && rule -d ${METADATA_ADDRESS_V6} -j REJECT`
}

/**
 * Returns a script that pulls the agent's image, and runs a program of it once. Both fail in the machine's own words: a
 * registry that rejects, a full disk, an image for another architecture. Some errors of a pull are final.
 */
function pullScript(agentImage: string): string {
  return `image=${agentImage}
pull() {
  docker image inspect -f . $image 2> /dev/null && return
  said=$(docker pull -q $image 2>&1) && return
  echo "$said"
  case $said in *'no space left'*|*'no matching manifest'*|*'manifest unknown'*) return 127 ;; esac
  return 1
}
if ! ready ${PULL_SECONDS} pull; then
  case $why in *'no space left'*) fail DiskFull "the disk has no room for the agent's image" ;; esac
  fail AgentUnavailable "the agent's image was not pulled"
fi
ready ${READY_SECONDS} docker run --rm --network none --entrypoint ${NODE} $image --version ||
  fail AgentUnavailable "the agent's image does not run on this $(uname -m) machine"`
}

/** Runs the agent in the host's network, because it polls the metadata service for preemption notices. */
function runAgent(): string {
  return [
    // Root owns the engine's socket, and the image's own user has no rights. The whole program would take twice the
    // memory.
    `docker run --rm --name berth-agent --user 0 --entrypoint ${NODE} --network host --log-driver none`,
    "--volume /var/run/docker.sock:/var/run/docker.sock",
    `--volume ${AGENT_DATA_DIR}:${AGENT_DATA_DIR}`,
    // Sockets of volume drivers, which the engine and the agent use.
    "--volume /run/docker/plugins:/run/docker/plugins",
    `$image /berth/agent.mjs agent --runtime docker --data-dir ${AGENT_DATA_DIR}`,
  ].join(" ")
}

/**
 * The agent exits with 0 only if its VM has nothing more to do. Otherwise systemd restarts the agent, which continues
 * its work. The unit doesn't require the engine's unit, which the script may have to install.
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
