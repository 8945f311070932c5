/** Requests to the server extension itself: kernels, notebooks, moves and terminals. */
import { URLExt } from "@jupyterlab/coreutils";
import type { ServerConnection } from "@jupyterlab/services";

import type { IKernelApi, IKernelPlace, IKernelRequest, IKernelSpec } from "../kernels/model";
import type { IMove, IMoveRequest, IMovesApi, ISurvey } from "../kernels/move_model";
import type { ITerminalRecord, ITerminalsApi } from "../terminals/model";
import { Requests, SERVER_API } from "./requests";

/** The API of the server extension. */
export class ServerApi extends Requests implements IKernelApi, IMovesApi, ITerminalsApi {
  async kernelSpecs(): Promise<IKernelSpec[]> {
    const answer = (await this.json(["kernelspecs"], "", {}, SERVER_API)) as {
      kernelspecs: IKernelSpec[];
    };
    return answer.kernelspecs;
  }

  async addKernel(request: IKernelRequest): Promise<IKernelSpec> {
    return (await this.post(["kernelspecs"], request, SERVER_API)) as IKernelSpec;
  }

  async removeKernel(name: string): Promise<void> {
    await this.send(["kernelspecs", name], "", { method: "DELETE" }, SERVER_API);
  }

  async kernelPlace(id: string): Promise<IKernelPlace | null> {
    const answer = (await this.json(["kernels", id], "", { cache: "no-store" }, SERVER_API)) as {
      place: IKernelPlace | null;
    };
    return answer.place;
  }

  async newNotebook(session: string): Promise<string> {
    const answer = (await this.post(["sessions", session, "notebooks"], {}, SERVER_API)) as {
      path: string;
    };
    return answer.path;
  }

  async beginMove(request: IMoveRequest): Promise<IMove> {
    return (await this.post(["moves"], { ...request, check: true }, SERVER_API)) as IMove;
  }

  async variables(notebook: string, kernel: string | undefined): Promise<ISurvey | null> {
    const answer = (await this.post(["variables"], { notebook, kernel }, SERVER_API)) as {
      survey: ISurvey | null;
    };
    return answer.survey;
  }

  async moves(): Promise<IMove[]> {
    const answer = (await this.json(["moves"], "", { cache: "no-store" }, SERVER_API)) as {
      moves: IMove[];
    };
    return answer.moves;
  }

  async move(id: string): Promise<IMove> {
    return (await this.json(["moves", id], "", { cache: "no-store" }, SERVER_API)) as IMove;
  }

  async giveUpMove(id: string): Promise<IMove> {
    return (await this.json(["moves", id], "", { method: "DELETE" }, SERVER_API)) as IMove;
  }

  async startTerminal(cluster: string, job: string | null): Promise<ITerminalRecord> {
    const path = ["clusters", cluster, "terminals"];
    return (await this.post(path, { job }, SERVER_API)) as ITerminalRecord;
  }

  async terminals(cluster: string): Promise<readonly ITerminalRecord[]> {
    const path = ["clusters", cluster, "terminals"];
    return (await this.json(path, "", {}, SERVER_API)) as ITerminalRecord[];
  }

  terminalSettings(cluster: string): ServerConnection.ISettings {
    const path = [SERVER_API, "clusters", encodeURIComponent(cluster)] as const;
    const baseUrl = URLExt.join(this.settings.baseUrl, ...path);
    return { ...this.settings, baseUrl, wsUrl: URLExt.join(this.settings.wsUrl, ...path) };
  }
}
