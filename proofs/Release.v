(* The release of an unknown domain with discrete Laplace noise, from the noise's mass function to
   (epsilon, delta): the d largest counts and the floor get noise, a label is shown if its noisy count
   exceeds the noisy floor by more than tau + c.
   dptopk.UnknownLaplace; docs/notes/mechanisms.md, "Slots" and "Thresholds" *)
From mathcomp Require Import all_ssreflect all_algebra ring zify.
From dptopk Require Import Game Rounds Setwise Failing Basic Slot Countable Laplace.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

(* Sums over finite lists without repetition; countable laws from them. *)
Section Sums.
Variables (R : realFieldType).

Lemma sum_part (T : eqType) (f : T -> R) l m : uniq l -> {subset l <= m} -> (forall t, 0 <= f t) ->
  \sum_(t <- l) f t <= \sum_(t <- m) f t.
Proof.
move=> + + f0; elim: l m => [|x l IH] m /=; first by rewrite big_nil sumr_ge0.
case/andP=> xl ul sub; have xm : x \in m by apply: sub; rewrite inE eqxx.
rewrite big_cons (perm_big _ (perm_to_rem xm)) big_cons ler_add2l; apply: IH => // y yl.
have ym : y \in m by apply: sub; rewrite inE yl orbT.
move: ym; rewrite (perm_mem (perm_to_rem xm)) inE => /orP[/eqP e|//].
by rewrite -e yl in xl.
Qed.

Variables (T : countType) (f : T -> R).
Hypothesis f_ge0 : forall t, 0 <= f t.
(* The outcomes of a countable type, by their numbers. *)
Definition coded i : R := if @pickle_inv T i is Some t then f t else 0.
Definition codes N : seq T := pmap (@pickle_inv T) (iota 0 N).

Lemma coded_sum N : \sum_(i < N) coded i = \sum_(t <- codes N) f t.
Proof.
rewrite -(big_mkord xpredT coded) /index_iota subn0 /codes.
elim: (iota 0 N) => [|i l IH]; first by rewrite !big_nil.
by rewrite big_cons IH /coded /=; case: (@pickle_inv T i) => [t|] /=; rewrite ?big_cons ?add0r.
Qed.

Lemma codes_uniq N : uniq (codes N).
Proof. by apply: (pmap_uniq (@pickle_invK T)); apply: iota_uniq. Qed.

Lemma mem_codes N t : (pickle t < N)%N -> t \in codes N.
Proof.
move=> tN; rewrite mem_pmap; apply/mapP; exists (pickle t); first by rewrite mem_iota.
by rewrite pickleK_inv.
Qed.

Lemma codes_all (l : seq T) : exists N, {subset l <= codes N}.
Proof.
suff [N HN] : exists N, all (fun t => (pickle t < N)%N) l.
  by exists N => t tl; apply: mem_codes; apply: (allP HN).
elim: l => [|t l [N IH]]; first by exists 0%N.
exists (maxn (pickle t).+1 N); rewrite /= leq_max ltnSn /=.
by apply: sub_all IH => s sN; rewrite leq_max sN orbT.
Qed.

Lemma coded_ge0 i : 0 <= coded i.
Proof. by rewrite /coded; case: pickle_inv. Qed.

Hypothesis f_le1 : forall l, uniq l -> \sum_(t <- l) f t <= 1.
Hypothesis f_near : forall e, 0 < e -> exists l, uniq l /\ 1 - e < \sum_(t <- l) f t.
Definition coded_law : claw R.
Proof.
apply: (@CLaw R coded coded_ge0) => [N|e e0]; first by rewrite coded_sum f_le1 ?codes_uniq.
have [l [ul near]] := f_near e0; have [N sub] := codes_all l.
by exists N; rewrite coded_sum; apply: lt_le_trans near _; apply: sum_part.
Defined.
End Sums.

Section Excess.
Variable R : realFieldType.
(* A law that is below another on a set: the others' excess there, and all its mass elsewhere, is no
   more than the first one's mass elsewhere. *)
Definition excess (P N : claw R) (G : pred nat) i : R := if G i then P i - N i else P i.
Lemma excess_mass (P N : claw R) (G : pred nat) dl :
  (forall i, G i -> N i <= P i) -> (forall n, \sum_(i < n | ~~ G i) N i <= dl) ->
  (forall i, 0 <= excess P N G i) /\ forall n, \sum_(i < n) excess P N G i <= dl.
Proof.
move=> below small; have e0 i : 0 <= excess P N G i.
  by rewrite /excess; case: ifP => Gi; [rewrite subr_ge0 below|apply: mass_ge0].
split=> // n; rewrite leNgt; apply/negP => big.
have gap0 : 0 < \sum_(i < n) excess P N G i - dl by rewrite subr_gt0.
have [M near] := mass_near N gap0.
have near' : 1 - (\sum_(i < n) excess P N G i - dl) < \sum_(i < n + M) N i.
  by apply: (lt_le_trans near); apply: sum_mono; rewrite leq_addl.
have grow : \sum_(i < n) excess P N G i <= \sum_(i < n + M) excess P N G i.
  by rewrite big_split_ord /= ler_addl sumr_ge0.
have split_ : \sum_(i < n + M) excess P N G i =
    \sum_(i < n + M) P i - \sum_(i < n + M) N i + \sum_(i < n + M | ~~ G i) N i.
  rewrite [X in _ + X]big_mkcond -sumrB -big_split; apply: eq_bigr => i _ /=.
  by rewrite /excess; case: (G i) => /=; rewrite ?addr0 ?subrK.
have := mass_le1 P (n + M); have := small (n + M)%N.
move: near' grow; rewrite split_; set s := \sum_(i < n) _; set p := \sum_(i < n + M) P i.
set m := \sum_(i < n + M) N i; set o := \sum_(i < n + M | _) _ => h1 h2 h3 h4.
have h5 : s <= 1 - m + dl by apply: (le_trans h2); apply: ler_add => //; rewrite ler_add2r.
have : m <= 1 - (s - dl).
  rewrite -subr_ge0 (_ : 1 - (s - dl) - m = 1 - m + dl - s); last by ring.
  by rewrite subr_ge0.
by rewrite leNgt h1.
Qed.
End Excess.

Section Release.
Variables (R : archiFieldType) (a : R).
Hypothesis a01 : 0 < a < 1.
Let a0 : 0 < a. Proof. by case/andP: a01. Qed.
Let a1 : a < 1. Proof. by case/andP: a01. Qed.
Local Notation laplace := (laplace a).
Local Notation below := (below a).

Variables (L : finType) (off : nat).

(* What is seen of one label at the threshold t: its noisy count, if that is above t. *)
Definition seen (t : int) (x : nat) (o : option int) : R :=
  if o is Some v then if t < v then laplace (v - x%:Z) else 0 else below (t - x%:Z).

(* Answers: the noisy floor, and the noisy counts of the labels that are shown. U: the labels that get
   noise, x: their counts, f: the floor. *)
Definition answer := (int * {ffun L -> option int})%type.
Definition factor (U : {set L}) (x : L -> nat) (y : int) l (o : option int) : R :=
  if l \in U then seen (y + off%:Z) (x l) o else (o == None)%:R.
Definition release U x (f : nat) (s : answer) : R :=
  laplace (s.1 - f%:Z) * \prod_l factor U x s.1 l (s.2 l).

Lemma seen_ge0 t x o : 0 <= seen t x o.
Proof.
rewrite /seen; case: o => [v|]; last exact: below_ge0.
by case: ifP => // _; apply: laplace_ge0.
Qed.
Lemma factor_ge0 U x y l o : 0 <= factor U x y l o.
Proof. by rewrite /factor; case: ifP => _; [apply: seen_ge0|apply: ler0n]. Qed.
Lemma release_ge0 U x f s : 0 <= release U x f s.
Proof. by rewrite mulr_ge0 ?laplace_ge0 // prodr_ge0 // => l _; apply: factor_ge0. Qed.

(* Boxes of answers: all integers from -K to K - 1. *)
Section Box.
Variable K : nat.
Definition here (i : 'I_(K + K)) : int := (- K%:Z) + i%:Z.
Definition spot (b : 'I_(K + K) * {ffun L -> option 'I_(K + K)}) : answer :=
  (here b.1, [ffun l => omap here (b.2 l)]).

Lemma here_inj : injective here.
Proof. by move=> i j /addrI [] /val_inj. Qed.
Lemma spot_inj : injective spot.
Proof.
move=> [i g] [j h] [] /here_inj -> e; congr (_, _); apply/ffunP => l.
have := congr1 (fun u : {ffun L -> option int} => u l) e; rewrite !ffunE.
by case: (g l) (h l) => [u|] [v|] //= [] /here_inj ->.
Qed.

Lemma here_onto (v : int) : - K%:Z <= v < K%:Z -> exists i, here i = v.
Proof.
move=> vK; have lt : (absz (v + K%:Z)%R < K + K)%N by lia.
by exists (Ordinal lt); rewrite /here /=; lia.
Qed.

Lemma sum_option n (F : option 'I_n -> R) : \sum_o F o = F None + \sum_i F (Some i).
Proof.
rewrite (bigD1 None) //=; congr (_ + _).
rewrite (reindex_omap Some id) => [|[]] //=.
by apply: eq_bigl => i; rewrite eqxx.
Qed.

Definition inside (x : nat) := below (K%:Z - 1 - x%:Z) - below (- K%:Z - 1 - x%:Z).

Lemma run_here (F : int -> R) x : \sum_i F (here i - x%:Z) = \sum_(i < K + K) F ((- K%:Z - x%:Z) + i%:Z).
Proof. by apply: eq_bigr => i _; congr F; rewrite /here; ring. Qed.

Lemma box_floor x : \sum_i laplace (here i - x%:Z) = inside x.
Proof.
rewrite run_here laplace_run //; congr (below _ - below _); lia.
Qed.

Lemma box_above t x : \sum_(i | t < here i) laplace (here i - x%:Z) =
  below (Num.max (K%:Z - 1 - x%:Z) (Num.max (t - x%:Z) (- K%:Z - 1 - x%:Z)))
  - below (Num.max (t - x%:Z) (- K%:Z - 1 - x%:Z)).
Proof.
have := laplace_run_above a01 (- K%:Z - x%:Z) (t - x%:Z) (K + K).
have -> : - K%:Z - x%:Z + (K + K)%N%:Z - 1 = K%:Z - 1 - x%:Z by lia.
have -> : - K%:Z - x%:Z - 1 = - K%:Z - 1 - x%:Z by lia.
move <-; apply: eq_big => i; first by rewrite /here; lia.
by move=> _; congr laplace; rewrite /here; ring.
Qed.

Lemma box_seen t x : inside x <= \sum_o seen t x (omap here o) <= 1.
Proof.
rewrite sum_option /= -big_mkcond box_above /inside.
set u := Num.max (t - x%:Z) _; set w := Num.max _ u.
have tu : below (t - x%:Z) <= below u by apply: below_mono => //; rewrite le_maxr lexx.
have w1 : below w <= 1 by apply: below_le1.
have w2 : below (K%:Z - 1 - x%:Z) <= below w by apply: below_mono => //; rewrite le_maxr lexx.
apply/andP; split; last first.
  rewrite (_ : _ + _ = below w - (below u - below (t - x%:Z))); last by ring.
  by apply: le_trans w1; rewrite ler_subl_addr ler_addl subr_ge0.
have [h|h] := leP (- K%:Z - 1 - x%:Z) (t - x%:Z).
  rewrite /u (max_l h) [X in _ <= X]addrC subrK; apply: le_trans w2.
  by rewrite ler_subl_addr ler_addl below_ge0.
rewrite /u (max_r (ltW h)) -[X in X <= _]add0r; apply: ler_add; first exact: below_ge0.
by rewrite ler_add2r; apply: (le_trans w2); rewrite /w /u (max_r (ltW h)).
Qed.

Lemma box_shown t x : \sum_(i | t < here i) laplace (here i - x%:Z) <= 1 - below (t - x%:Z).
Proof.
rewrite box_above; apply: ler_sub; first exact: below_le1.
by apply: below_mono => //; rewrite le_maxr lexx.
Qed.

Lemma box_product (F : L -> option int -> R) :
  \sum_(g : {ffun L -> option 'I_(K + K)}) \prod_l F l (omap here (g l)) =
  \prod_l \sum_o F l (omap here o).
Proof. by rewrite bigA_distr_bigA. Qed.

Lemma box_factor (U : {set L}) x y l :
  (if l \in U then inside (x l) else 1) <= \sum_o factor U x y l (omap here o) <= 1.
Proof.
rewrite /factor; case: ifP => _; first exact: box_seen.
by rewrite sum_option /= big1 ?addr0 ?lexx.
Qed.

Lemma box_release U x f : \sum_b release U x f (spot b) =
  \sum_i laplace (here i - f%:Z) * \prod_l \sum_o factor U x (here i) l (omap here o).
Proof.
rewrite -(pair_bigA _ (fun i g => release U x f (spot (i, g)))) /=; apply: eq_bigr => i _.
rewrite -box_product mulr_sumr; apply: eq_bigr => g _.
by rewrite /release /=; congr (_ * _); apply: eq_bigr => l _; rewrite ffunE.
Qed.

Lemma box_le1 U x f : \sum_b release U x f (spot b) <= 1.
Proof.
rewrite box_release; apply: (@le_trans _ _ (\sum_i laplace (here i - f%:Z))).
  apply: ler_sum => i _; rewrite ler_pimulr ?laplace_ge0 //.
  apply: (@le_trans _ _ (\prod_(l : L) 1)); last by rewrite big1_eq.
  apply: ler_prod => l _; have /andP[_ ->] := box_factor U x (here i) l.
  by rewrite andbT sumr_ge0 // => o _; apply: factor_ge0.
rewrite box_floor /inside ler_subl_addr; apply: (@le_trans _ _ 1); first exact: below_le1.
by rewrite ler_addl below_ge0.
Qed.

(* One label that gets noise and stands at most [off] - c above the floor is shown with a probability of
   at most the tail of a difference. *)
Lemma box_special (U : {set L}) x f c m : m \in U -> (x m + c <= f + off)%N ->
  \sum_(b | (spot b).2 m != None) release U x f (spot b) <= tail a c.
Proof.
move=> mU xm.
pose F y l o := if (l == m) && (o == None) then 0 else factor U x y l o.
have -> : \sum_(b | (spot b).2 m != None) release U x f (spot b) =
    \sum_i laplace (here i - f%:Z) * \prod_l \sum_o F (here i) l (omap here o).
  rewrite big_mkcond -(pair_bigA _ (fun i g => if (spot (i, g)).2 m != None then release U x f (spot (i, g)) else 0)) /=.
  apply: eq_bigr => i _; rewrite -box_product mulr_sumr; apply: eq_bigr => g _.
  rewrite /release /= ffunE; case: (altP (omap here (g m) =P None)) => e /=.
    by rewrite (bigD1 m) //= /F eqxx e eqxx mul0r mulr0.
  congr (_ * _); apply: eq_bigr => l _; rewrite ffunE /F.
  by case: (altP (l =P m)) => [->|//]; rewrite (negbTE e).
apply: (@le_trans _ _ (\sum_i laplace (here i - f%:Z) * (1 - below (here i - f%:Z + c%:Z)))).
  apply: ler_sum => i _; apply: ler_wpmul2l; first exact: laplace_ge0.
  rewrite (bigD1 m) //=.
  apply: (@le_trans _ _ (\sum_o F (here i) m (omap here o))).
    rewrite ler_pimulr //.
      by apply: sumr_ge0 => o _; rewrite /F; case: ifP => // _; apply: factor_ge0.
    apply: (@le_trans _ _ (\prod_(l | l != m) 1)); last by rewrite big1_eq.
    apply: ler_prod => l lm.
    under eq_bigr do rewrite /F (negbTE lm).
    have /andP[_ ->] := box_factor U x (here i) l.
    by rewrite andbT sumr_ge0 // => o _; apply: factor_ge0.
  rewrite sum_option {1}/F !eqxx add0r /=.
  under eq_bigr do rewrite /F /= andbF /factor mU /=.
  rewrite -big_mkcond; apply: (le_trans (box_shown _ _)).
  rewrite ler_add2l ler_opp2; apply: below_mono => //; lia.
have := slot_laplace_tail a01 c (- K%:Z - f%:Z) (K + K); apply: le_trans.
rewrite le_eqVlt; apply/orP; left; apply/eqP.
by apply: eq_bigr => i _; rewrite /difference; congr (laplace _ * (1 - below (_ + _))); rewrite /here; ring.
Qed.

Lemma box_near (U : {set L}) x f e : (forall l, l \in U -> 1 - e <= inside (x l)) -> 1 - e <= inside f -> 0 <= e <= 1 ->
  1 - e *+ #|L|.+1 <= \sum_b release U x f (spot b).
Proof.
move=> Hx Hf /andP[e0 e1]; rewrite box_release.
have e10 : 0 <= 1 - e by rewrite subr_ge0.
have bern n : 1 - e *+ n <= (1 - e) ^+ n.
  elim: n => [|n IH]; first by rewrite mulr0n subr0.
  rewrite exprS; apply: le_trans (ler_wpmul2l e10 IH); rewrite mulrS.
  have : 0 <= e * (e *+ n) by rewrite mulr_ge0 // mulrn_wge0.
  move: (e *+ n) => y y0; rewrite (_ : (1 - e) * (1 - y) = 1 - (e + y) + e * y); last by ring.
  by rewrite ler_addl.
apply: (le_trans (bern _)); rewrite exprS.
apply: (@le_trans _ _ (\sum_i laplace (here i - f%:Z) * (1 - e) ^+ #|L|)).
  by rewrite -mulr_suml box_floor; apply: ler_wpmul2r => //; apply: exprn_ge0.
apply: ler_sum => i _; apply: ler_wpmul2l; first exact: laplace_ge0.
rewrite -[_ ^+ _](prodr_const predT); apply: ler_prod => l _; rewrite e10 /=.
have /andP[h _] := box_factor U x (here i) l; apply: le_trans h.
by case: ifP => lU; [apply: Hx|rewrite ler_subl_addr ler_addl].
Qed.
End Box.

(* Every answer lies in all large boxes. *)
Lemma fits (s : answer) : exists K0, forall K, (K0 <= K)%N -> s \in codom (@spot K).
Proof.
pose size_of (o : option int) := if o is Some v then (absz v).+1 else 0%N.
exists (maxn (absz s.1).+1 (\max_l size_of (s.2 l))) => K; rewrite geq_max => /andP[K1 K2].
have [i Hi] : exists i : 'I_(K + K), here i = s.1 by apply: here_onto; lia.
have /fin_all_exists[g Hg] : forall l, exists o : option 'I_(K + K), omap (@here K) o = s.2 l.
  move=> l; have : (size_of (s.2 l) <= K)%N by apply: leq_trans K2; apply: leq_bigmax.
  case: (s.2 l) => [v|] /= h; last by exists None.
  have [j Hj] : exists j : 'I_(K + K), here j = v by apply: here_onto; lia.
  by exists (Some j); rewrite /= Hj.
apply/codomP; exists (i, [ffun l => g l]); rewrite /spot /= Hi.
case: s {K1 K2 Hi} Hg => y m /= Hg; congr (_, _); apply/ffunP => l.
by rewrite !ffunE Hg.
Qed.

Lemma fits_all (l : seq answer) : exists K, {subset l <= codom (@spot K)}.
Proof.
suff [K HK] : exists K0, forall K, (K0 <= K)%N -> {subset l <= codom (@spot K)}.
  by exists K; apply: HK.
elim: l => [|s l [K1 H1]]; first by exists 0%N.
have [K2 H2] := fits s; exists (maxn K1 K2) => K; rewrite geq_max => /andP[h1 h2] t.
by rewrite inE => /orP[/eqP ->|]; [apply: H2|apply: H1].
Qed.

Lemma by_boxes (F : answer -> R) E : (forall s, 0 <= F s) -> (forall K, \sum_b F (@spot K b) <= E) ->
  forall l, uniq l -> \sum_(s <- l) F s <= E.
Proof.
move=> F0 H l ul; have [K sub] := fits_all l.
apply: (le_trans (sum_part ul sub F0)); apply: le_trans (H K).
by rewrite big_image.
Qed.

Lemma release_le1 U x f l : uniq l -> \sum_(s <- l) release U x f s <= 1.
Proof. by apply: by_boxes => [s|K]; [apply: release_ge0|apply: box_le1]. Qed.

Lemma release_near U x f e : 0 < e -> exists l, uniq l /\ 1 - e < \sum_(s <- l) release U x f s.
Proof.
move=> e0; pose n := #|L|.+1.
have n0 : 0 < n%:R + n%:R :> R by rewrite addr_gt0 ?ltr0Sn.
pose e1 := Num.min 1 (e / (n%:R + n%:R)).
have e10 : 0 < e1 by rewrite lt_minr ltr01 divr_gt0.
have e11 : e1 <= 1 by rewrite le_minl lexx.
have small : e1 *+ n < e.
  apply: (@le_lt_trans _ _ (e / (n%:R + n%:R) *+ n)).
    by apply: ler_wmuln2r; rewrite le_minl lexx orbT.
  rewrite -mulr_natr -mulrA [_^-1 * _]mulrC mulrA ltr_pdivr_mulr //.
  by rewrite ltr_pmul2l // ltr_addr ltr0Sn.
have [K0 far] := below_far a01 (divr_gt0 e10 (ltr0Sn _ 1)).
pose K := (K0 + (\max_l x l + f)).+1.
have good y : (y <= \max_l x l + f)%N -> 1 - e1 <= inside K y.
  move=> yK; rewrite /inside.
  have -> : K%:Z - 1 - y%:Z = (K.-1 - y)%N%:Z by rewrite /K; lia.
  have -> : - K%:Z - 1 - y%:Z = Negz (K + y) by lia.
  have k1 : (K0 <= K.-1 - y)%N by rewrite /K; lia.
  have k2 : (K0 <= K + y)%N by rewrite /K; lia.
  have [h1 _] := far _ k1; have [_ h2] := far _ k2.
  rewrite (_ : 1 - e1 = 1 - e1 / 2%:R - e1 / 2%:R); last by field.
  by apply: ler_sub.
have near : 1 - e < \sum_b release U x f (@spot K b).
  apply: lt_le_trans (box_near (e := e1) _ _ _); first by rewrite ltr_add2l ltr_opp2.
  - by move=> l _; apply: good; rewrite (leq_trans (leq_bigmax l)) ?leq_addr.
  - by apply: good; rewrite leq_addl.
  by rewrite ltW.
exists (codom (@spot K)); split; first by rewrite /codom map_inj_uniq ?enum_uniq //; apply: spot_inj.
by rewrite big_image.
Qed.

Definition release_law U x f : claw R :=
  coded_law (release_ge0 U x f) (release_le1 U x f) (release_near U x f).
End Release.

(* Back to whole numbers: which labels get noise, and how the slots and the floor move together. *)
Local Close Scope ring_scope.
Section Slots.
Variables (L : finType) (rank : L -> nat).
Hypothesis rank_inj : injective rank.

(* The d labels of the largest counts, ties by rank. *)
Definition order (y : L -> nat) : rel L := fun l m => (y m < y l) || ((y m == y l) && (rank l <= rank m)).
Definition chosen (d : nat) y : {set L} := [set l in take d (sort (order y) (enum L))].

Lemma order_trans y : transitive (order y).
Proof.
move=> m l k /orP[h1|/andP[/eqP e1 r1]] /orP[h2|/andP[/eqP e2 r2]]; rewrite /order.
- by rewrite (ltn_trans h2 h1).
- by rewrite e2 h1.
- by rewrite -e1 h2.
by rewrite e2 e1 eqxx (leq_trans r1 r2) orbT.
Qed.
Lemma order_total y : ssrbool.total (order y).
Proof. by move=> l m; rewrite /order; case: (ltngtP (y l) (y m)) => //= _; apply: leq_total. Qed.

Lemma chosen_same d y y2 : y =1 y2 -> chosen d y = chosen d y2.
Proof.
move=> e; have same l m : order y l m = order y2 l m by rewrite /order !e.
have anti : antisymmetric (order y).
  move=> l m; rewrite /order; case: ltngtP => //= _; rewrite -eqn_leq => /eqP; exact: rank_inj.
apply/setP => l; rewrite !inE; congr (l \in take d _).
apply: (sorted_eq (@order_trans y) anti); first exact: sort_sorted (@order_total y) _.
  by rewrite (eq_sorted same); apply: sort_sorted (@order_total y2) _.
by rewrite perm_sort perm_sym perm_sort.
Qed.

Lemma chosen_size d y : #|chosen d y| = minn d #|L|.
Proof.
rewrite cardsE; have := @take_uniq _ (sort (order y) (enum L)) d.
rewrite sort_uniq enum_uniq => /(_ isT)/card_uniqP ->.
by rewrite size_take size_sort -cardE minnC /minn; case: ltngtP.
Qed.

Lemma chosen_top d y : top rank y (chosen d y).
Proof.
move=> l m; rewrite !inE => lS mS.
have := sort_sorted (@order_total y) (enum L); rewrite (sorted_pairwise (@order_trans y)).
rewrite -[X in pairwise _ X](cat_take_drop d) pairwise_cat => /andP[/allrelP all _].
have mD : m \in drop d (sort (order y) (enum L)).
  have : m \in sort (order y) (enum L) by rewrite mem_sort mem_enum.
  by rewrite -{1}(cat_take_drop d (sort _ _)) mem_cat (negbTE mS).
have := all _ _ lS mD; rewrite /order /before => /orP[-> //|/andP[-> rl]] /=.
rewrite [(rank l < rank m)%N]ltn_neqAle rl andbT (_ : rank l != rank m) ?orbT //.
by apply: contraNneq mS => /rank_inj <-.
Qed.

(* A user who adds v: the slots and the floor move by at most the user's total together. *)
Variables (x v : L -> nat) (tau : nat).
Hypothesis v_tau : forall l, (v l <= tau)%N.
Variables (S S' : {set L}).
Hypothesis S_top : top rank x S.
Hypothesis S'_top : top rank (x' x v) S'.
Hypothesis same_size : #|S| = #|S'|.

Lemma heaviest (U : {set L}) k : #|U| = (#|S| + k)%N -> (\sum_(l in U) x l <= \sum_(l in S) x l + k * floor x S)%N.
Proof.
move=> size_U; rewrite (big_setID S) [X in (_ <= X + _)%N](big_setID U) /= setIC -addnA leq_add2l.
apply: (@leq_trans (#|U :\: S| * floor x S)).
  rewrite -sum_nat_const; apply: leq_sum => l; rewrite inE => /andP[lS _]; exact: floor_ge.
have -> : (#|U :\: S| = #|S :\: U| + k)%N.
  by apply/eqP; rewrite -(eqn_add2l #|U :&: S|) cardsID addnA [U :&: S]setIC cardsID size_U.
rewrite mulnDl leq_add2r -sum_nat_const; apply: leq_sum => l; rewrite inE => /andP[_ lS].
by apply/bigmax_leqP => m mS; apply: before_le (S_top lS mS).
Qed.

Lemma slot_sum (f : L -> nat) : (\sum_(m in S') f (slot S S' m) = \sum_(l in S) f l)%N.
Proof.
rewrite -(big_imset f (slot_inj same_size)) /=; apply: eq_bigl => l.
suff -> : [set slot S S' m | m in S'] = S by [].
apply/eqP; rewrite eqEcard (card_in_imset (slot_inj same_size)) same_size leqnn andbT.
by apply/subsetP => k /imsetP[m mS' ->]; apply: slot_in.
Qed.

Theorem slot_and_floor :
  (floor (x' x v) S' - floor x S + \sum_(m in S') (x' x v m - x (slot S S' m)) <= \sum_l v l)%N.
Proof.
have up m : m \in S' -> (x (slot S S' m) <= x' x v m)%N.
  by move=> mS'; case/andP: (slot_pairing S_top S'_top same_size mS').
have /andP[fl _] := slot_floor v_tau S_top S'_top same_size.
rewrite sumnB // slot_sum.
have Sx : (\sum_(l in S) x l <= \sum_(m in S') x' x v m)%N by rewrite -slot_sum; apply: leq_sum.
suff : (floor (x' x v) S' + \sum_(m in S') x' x v m <= floor x S + \sum_(l in S) x l + \sum_l v l)%N by lia.
case: (posnP #|[pred m | m \notin S']|) => [none|some].
  have -> : floor (x' x v) S' = 0%N.
    by apply: big_pred0 => m; have := card0_eq none m; rewrite inE.
  have := heaviest (U := S') (k := 0); rewrite addn0 mul0n addn0 => /(_ (esym same_size)) h.
  rewrite add0n /x' big_split /=; apply: leq_add; first by apply: (leq_trans h); rewrite leq_addl.
  by rewrite [X in (_ <= X)%N](bigID (mem S')) /= leq_addr.
have [m0 m0S' e] := eq_bigmax_cond (x' x v) some; rewrite inE in m0S'.
have -> : floor (x' x v) S' = x' x v m0 by rewrite -e; apply: eq_bigl => m; rewrite inE.
have -> : (x' x v m0 + \sum_(m in S') x' x v m = \sum_(m in m0 |: S') x' x v m)%N by rewrite big_setU1.
have := heaviest (U := m0 |: S') (k := 1); rewrite cardsU1 m0S' same_size addn1 mul1n => /(_ erefl) h.
rewrite /x' big_split /=; apply: leq_add; first by apply: (leq_trans h); rewrite addnC.
by rewrite [X in (_ <= X)%N](bigID (mem (m0 |: S'))) /= leq_addr.
Qed.
End Slots.

Local Open Scope ring_scope.
(* Neighbours: one user adds v, at most tau to each of at most Delta labels. *)
Section Mechanism.
Variables (R : archiFieldType) (a : R).
Hypothesis a01 : 0 < a < 1.
Let a0 : 0 < a. Proof. by case/andP: a01. Qed.
Let a1 : a < 1. Proof. by case/andP: a01. Qed.
Variables (L : finType) (rank : L -> nat) (d tau c Delta : nat).
Hypothesis rank_inj : injective rank.
Local Notation off := (tau + c)%N.
Local Notation chosen := (chosen rank d).
Local Notation floor := (@floor L).
Local Notation release := (@release R a L off).
Local Notation law U x f := (release_law a01 off U x f).

(* The mechanism on a histogram: the present labels among the d largest, and the largest count below. *)
Definition unknown_laplace (y : L -> nat) : claw R :=
  law [set l in chosen y | 0 < y l]%N y (floor y (chosen y)).

Definition at_most (v : L -> nat) := (forall l, v l <= tau)%N /\ (#|[set l | 0 < v l]%N| <= Delta)%N.
Definition adds (y y' : L -> nat) := exists v, at_most v /\ forall l, y' l = (y l + v l)%N.
Definition neighbours y y' := adds y y' \/ adds y' y.

Definition copies := minn Delta d.+1.
Definition ratio : R := a ^- (copies * tau).
Definition missed : R := (minn Delta d)%:R * tail a c.

Lemma seen_up t x k o : a ^+ k * seen a t x o <= seen a t (x + k) o.
Proof.
have e z : z - (x + k)%N%:Z = z - x%:Z - k%:Z by lia.
rewrite /seen; case: o => [v|]; rewrite e; last exact: below_down.
by case: ifP => _; [apply: laplace_up|rewrite mulr0].
Qed.
Lemma seen_down t x k o : a ^+ k * seen a t (x + k) o <= seen a t x o.
Proof.
have e z : z - (x + k)%N%:Z = z - x%:Z - k%:Z by lia.
rewrite /seen; case: o => [v|]; rewrite e.
  by case: ifP => _; [apply: laplace_down|rewrite mulr0].
apply: (@le_trans _ _ (below a (t - x%:Z - k%:Z))).
  by rewrite ler_pimull ?below_ge0 // exprn_ile1 // ltW.
by apply: below_mono => //; lia.
Qed.

(* Slots that move up by k l, and a floor that moves up by k0. *)
Lemma release_moves (U : {set L}) x k f k0 n s : (k0 + \sum_(l in U) k l <= n)%N ->
  a ^+ n * release U x f s <= release U (fun l => x l + k l)%N (f + k0) s /\
  a ^+ n * release U (fun l => x l + k l)%N (f + k0) s <= release U x f s.
Proof.
move=> Kn; have an : a ^+ n <= a ^+ k0 * \prod_l (if l \in U then a ^+ k l else 1).
  by rewrite -big_mkcond -expr_sum -exprD; apply: ler_wiexpn2l => //; apply: ltW.
have pr U1 x1 f1 : 0 <= release U1 x1 f1 s by apply: release_ge0.
have e : s.1 - (f + k0)%N%:Z = s.1 - f%:Z - k0%:Z by lia.
have P0 l : 0 <= (if l \in U then a ^+ k l else 1) by case: ifP => _; rewrite ?ler01 // exprn_ge0 // ltW.
have an0 k1 : 0 <= a ^+ k1 by rewrite exprn_ge0 // ltW.
split; apply: (le_trans (ler_wpmul2r (pr _ _ _) an)); rewrite /release mulrACA -big_split /= e.
  apply: ler_pmul.
  - by rewrite mulr_ge0 ?laplace_ge0.
  - by apply: prodr_ge0 => l _; rewrite mulr_ge0 // factor_ge0.
  - exact: laplace_up.
  apply: ler_prod => l _; rewrite mulr_ge0 ?factor_ge0 //= /factor; case: ifP => _; last by rewrite mul1r.
  exact: seen_up.
apply: ler_pmul.
- by rewrite mulr_ge0 ?laplace_ge0.
- by apply: prodr_ge0 => l _; rewrite mulr_ge0 // factor_ge0.
- exact: laplace_down.
apply: ler_prod => l _; rewrite mulr_ge0 ?factor_ge0 //= /factor; case: ifP => _; last by rewrite mul1r.
exact: seen_down.
Qed.

(* Labels outside of a set G are shown with a probability of at most the sum over those that get noise. *)
Definition within (G : {set L}) (s : answer L) := [forall l, (s.2 l != None) ==> (l \in G)].
Definition codes_within G i := if @pickle_inv [countType of answer L] i is Some s then within G s else true.

Lemma outside (U G : {set L}) x f n : (forall m, m \in U -> m \notin G -> x m <= f + tau)%N ->
  \sum_(i < n | ~~ codes_within G i) law U x f i <= #|U :\: G|%:R * tail a c.
Proof.
move=> low; pose F s := if within G s then 0 else release U x f s.
have F0 s : 0 <= F s by rewrite /F; case: ifP => // _; apply: release_ge0.
have -> : \sum_(i < n | ~~ codes_within G i) law U x f i = \sum_(i < n) coded F i.
  rewrite big_mkcond; apply: eq_bigr => i _; rewrite /codes_within /= /coded /F.
  by case: pickle_inv => [s|] //=; case: (within G s).
rewrite coded_sum; apply: (by_boxes a01 F0) (codes_uniq _ _) => K.
apply: (@le_trans _ _ (\sum_b \sum_(m in U :\: G) (if (spot b).2 m != None then release U x f (@spot L K b) else 0))).
  apply: ler_sum => b _; rewrite /F; case: ifP => [_|/forallPn[l]].
    by apply: sumr_ge0 => m _; case: ifP => // _; apply: release_ge0.
  rewrite negb_imply => /andP[sl lG].
  case: (boolP (l \in U)) => lU.
    rewrite (bigD1 l) ?inE ?lU ?lG //= sl ler_addl.
    by apply: sumr_ge0 => m _; case: ifP => // _; apply: release_ge0.
  rewrite {1}/release (bigD1 l) //= {1}/factor (negbTE lU) (negbTE sl) mul0r mulr0.
  by apply: sumr_ge0 => m _; case: ifP => // _; apply: release_ge0.
rewrite exchange_big /= -sum1_card natr_sum mulr_suml; apply: ler_sum => m; rewrite inE => /andP[mG mU].
rewrite -big_mkcond mul1r; apply: box_special => //.
by have := low m mU mG; lia.
Qed.

Section Added.
Variables (x v : L -> nat).
Hypothesis v_most : at_most v.
Let v_tau : forall l, (v l <= tau)%N. Proof. by case: v_most. Qed.
Local Notation y := (x' x v).
Local Notation S := (chosen x).
Local Notation S' := (chosen y).
Let S_top := @chosen_top L rank rank_inj d x.
Let S'_top := @chosen_top L rank rank_inj d y.
Let same : #|S| = #|S'|. Proof. by rewrite !chosen_size. Qed.
Local Notation partner := (slot S S').

(* The labels that get noise; those with and without the user; what the slots hold without the user. *)
Let T := [set l in S | 0 < x l]%N.
Let T' := [set l in S' | 0 < y l]%N.
Let G := T :&: S'.
Let z m := x (partner m).
Let f := floor x S.
Let f' := floor y S'.

Let inT l : (l \in T) = (l \in S) && (0 < x l)%N. Proof. by rewrite [LHS]in_set. Qed.
Let inT' l : (l \in T') = (l \in S') && (0 < y l)%N. Proof. by rewrite [LHS]in_set. Qed.
Let inG l : (l \in G) = (l \in S) && (0 < x l)%N && (l \in S'). Proof. by rewrite [LHS]in_setI inT. Qed.
Let inS := (in_setD, inG, inT, inT').

Lemma specials : (#|T' :\: G| <= minn Delta d)%N.
Proof.
rewrite leq_min; apply/andP; split.
  case: v_most => _; apply: leq_trans; apply/subset_leq_card/subsetP => m; rewrite !inS in_set.
  case/andP=> special /andP[mS' ym]; rewrite lt0n; apply/eqP => vm.
  have xm : (0 < x m)%N by move: ym; rewrite /x' vm addn0.
  have mS : m \notin S by move: special; rewrite xm mS' !andbT.
  have := slot_displaced same mS' mS; rewrite in_setD => /andP[oS' oS].
  by have := slot_entered S_top S'_top oS oS' mS' mS; rewrite vm.
apply: (@leq_trans #|S'|); last by rewrite chosen_size geq_minl.
by apply/subset_leq_card/subsetP => m; rewrite !inS => /andP[_ /andP[]].
Qed.

Lemma low m : m \in T' -> m \notin G -> (z m <= f + tau)%N /\ (y m <= f' + tau)%N.
Proof.
rewrite !inS => /andP[mS' ym]; rewrite mS' andbT negb_and => special.
case: (boolP (m \in S)) => mS.
  rewrite mS /= -leqNgt leqn0 in special; rewrite /z /slot mS (eqP special); split=> //.
  by rewrite /x' (eqP special) add0n (leq_trans (v_tau m)) // leq_addl.
have := slot_displaced same mS' mS; rewrite in_setD => /andP[oS' oS]; split.
  exact: (slot_special_left v_tau S_top S'_top same oS oS').
exact: (slot_special_entered v_tau S_top S'_top same mS' mS).
Qed.

(* On answers that show common labels only, the slots' law is below the true one. *)
Lemma slots_below s : within G s -> release T' z f s <= release T x f s.
Proof.
move=> sG; rewrite /release; apply: ler_wpmul2l; first exact: laplace_ge0.
have none l : l \notin G -> s.2 l = None.
  by move=> lG; have := forallP sG l; rewrite (negbTE lG) implybF negbK => /eqP.
have parts (U : {set L}) x1 : G \subset U -> \prod_l factor a off U x1 s.1 l (s.2 l) =
    \prod_(l in G) seen a (s.1 + off%:Z) (x1 l) (s.2 l) *
    \prod_(l in U :\: G) below a (s.1 + off%:Z - (x1 l)%:Z).
  move=> GU; rewrite (bigID (mem G)) /=; congr (_ * _).
    by apply: eq_bigr => l lG; rewrite /factor (subsetP GU).
  rewrite (bigID (mem U)) /= [X in _ * X]big1 ?mulr1.
    apply: eq_big => [l|l /andP[lG lU]]; first by rewrite in_setD.
    by rewrite /factor lU none.
  by move=> l /andP[lG lU]; rewrite /factor (negbTE lU) none.
have GT : G \subset T by apply: subsetIl.
have GT' : G \subset T'.
  by apply/subsetP => l; rewrite !inS => /andP[/andP[_ xl] ->]; rewrite /x' (leq_trans xl) // leq_addr.
rewrite !parts //.
have -> : \prod_(l in G) seen a (s.1 + off%:Z) (z l) (s.2 l) = \prod_(l in G) seen a (s.1 + off%:Z) (x l) (s.2 l).
  by apply: eq_bigr => l; rewrite inS /z /slot => /andP[/andP[-> _] _].
apply: ler_wpmul2l; first by apply: prodr_ge0 => l _; apply: seen_ge0.
(* the slots without the user hold all labels that got noise, and perhaps more *)
have inj : {in T' :\: G &, injective partner}.
  by move=> l m; rewrite !inS => /andP[_ /andP[lS _]] /andP[_ /andP[mS _]]; apply: slot_inj.
rewrite -(big_imset (fun l => below a (s.1 + off%:Z - (x l)%:Z)) inj) /=.
have sub : T :\: G \subset partner @: (T' :\: G).
  apply/subsetP => l; rewrite !inS => /andP[lG /andP[lS xl]].
  move: lG; rewrite lS xl /= => lS'.
  have /imsetP[m mS' e] : l \in partner @: S'.
    suff -> : partner @: S' = S by [].
    apply/eqP; rewrite eqEcard (card_in_imset (slot_inj same)) same leqnn andbT.
    by apply/subsetP => k /imsetP[m mS' ->]; apply: slot_in.
  apply/imsetP; exists m => //; rewrite !inS mS' /= andbT.
  have /andP[up _] := slot_pairing S_top S'_top same mS'.
  rewrite -e in up; rewrite (leq_trans xl up) andbT.
  by apply: contra lS' => /andP[mS _]; rewrite e /slot mS.
rewrite (big_setID (T :\: G)) /= (setIidPr sub) ler_pimulr //.
  by apply: prodr_ge0 => l _; apply: below_ge0.
apply: (@le_trans _ _ (\prod_(l in (partner @: (T' :\: G)) :\: (T :\: G)) 1)); last by rewrite big1_eq.
by apply: ler_prod => l _; rewrite below_ge0 // below_le1.
Qed.

Lemma moves : (f' - f + \sum_(l in T') (y l - z l) <= copies * tau)%N.
Proof.
have sub g : (\sum_(l in T') g l <= \sum_(l in S') g l)%N.
  by rewrite [X in (_ <= X)%N](bigID (mem T')) /=; apply: leq_trans (leq_addr _ _);
     apply: eq_leq; apply: eq_bigl => l; rewrite inT'; case: (l \in S').
apply: (@leq_trans (f' - f + \sum_(l in S') (y l - z l))); first by rewrite leq_add2l.
rewrite /copies minnMl leq_min; apply/andP; split.
  apply: leq_trans (slot_and_floor v_tau S_top S'_top same) _.
  rewrite (bigID (fun l => 0 < v l)%N) /= [X in (_ + X)%N]big1 ?addn0; last first.
    by move=> l; rewrite lt0n negbK => /eqP.
  apply: (@leq_trans (#|[set l | 0 < v l]%N| * tau)); last by rewrite leq_mul2r; case: v_most => _ ->; rewrite orbT.
  rewrite -sum_nat_const (eq_bigl (fun l => l \in [set l | 0 < v l]%N)); last by move=> l; rewrite inE.
  by apply: leq_sum => l _.
have /andP[_ up] := slot_floor v_tau S_top S'_top same.
rewrite mulSn; apply: leq_add; first by rewrite leq_subLR.
apply: (@leq_trans (#|S'| * tau)); last by rewrite leq_mul2r chosen_size geq_minl orbT.
rewrite -sum_nat_const; apply: leq_sum => m mS'; rewrite leq_subLR.
have /andP[_ h] := slot_pairing S_top S'_top same mS'; apply: (leq_trans h).
by rewrite leq_add2l.
Qed.

Lemma slots_ratio s :
  a ^+ (copies * tau) * release T' z f s <= release T' y f' s /\
  a ^+ (copies * tau) * release T' y f' s <= release T' z f s.
Proof.
have /andP[fl _] := slot_floor v_tau S_top S'_top same.
have := @release_moves T' z (fun l => y l - z l)%N f (f' - f) _ s moves; rewrite subnKC //.
have same_law : release T' (fun l => z l + (y l - z l))%N f' s = release T' y f' s.
  rewrite /release; congr (_ * _); apply: eq_bigr => l _; rewrite /factor; case: ifP => // lT'.
  by rewrite subnKC //; move: lT'; rewrite inS => /andP[lS' _]; case/andP: (slot_pairing S_top S'_top same lS').
by rewrite same_law.
Qed.
End Added.

Lemma same_counts y y2 : y =1 y2 -> forall i, unknown_laplace y i = unknown_laplace y2 i.
Proof.
move=> e i; have cho : chosen y = chosen y2 by apply: chosen_same.
have u : [set l in chosen y | 0 < y l]%N = [set l in chosen y2 | 0 < y2 l]%N.
  by rewrite cho; apply/setP => l; rewrite [LHS]in_set [RHS]in_set e.
have f : floor y (chosen y) = floor y2 (chosen y2) by rewrite /Slot.floor cho; apply: eq_bigr => l _; rewrite e.
rewrite /= /coded; case: pickle_inv => // s; rewrite /release u f; congr (_ * _).
by apply: eq_bigr => l _; rewrite /factor e.
Qed.

(* The cost of the release: pure DP but for a mass of failures. *)
Theorem slot_laplace_cost h h' : neighbours h h' ->
  cgood_set (@ccls R) ((false, ratio), missed) (unknown_laplace h) (unknown_laplace h').
Proof.
have ratios P Q : (forall s, a ^+ (copies * tau) * P s <= Q s /\ a ^+ (copies * tau) * Q s <= P s) ->
    forall i, @coded R [countType of answer L] P i <= ratio * coded Q i /\ coded Q i <= ratio * coded P i.
  move=> H i; rewrite /coded; case: pickle_inv => [s|]; last by rewrite !mulr0.
  by rewrite /ratio !ler_pdivl_mull ?exprn_gt0.
have fewer (U G : {set L}) : (#|U :\: G| <= minn Delta d)%N -> #|U :\: G|%:R * tail a c <= missed.
  move=> few; apply: ler_wpmul2r; last by rewrite ler_nat.
  by apply: le_trans (tail_from_tail a01 c 0); apply: tail_from_ge0.
case=> [[v [vm e]]|[v [vm e]]].
- pose N := law [set l in chosen (x' h v) | 0 < x' h v l]%N (fun m => h (slot (chosen h) (chosen (x' h v)) m)) (floor h (chosen h)).
  pose G := [set l in chosen h | 0 < h l]%N :&: chosen (x' h v).
  have under i : codes_within G i -> N i <= unknown_laplace h i.
    by rewrite /codes_within /= /coded; case: pickle_inv => // s; apply: slots_below.
  have out n : \sum_(i < n | ~~ codes_within G i) N i <= missed.
    apply: le_trans (fewer _ _ (specials _ vm)); apply: outside => m mT mG.
    by case: (low vm mT mG).
  have [b0 bm] := excess_mass under out.
  exists N, (unknown_laplace (x' h v)), (excess (unknown_laplace h) N (codes_within G)), (codes_within G).
  split=> //.
  + by move=> i; apply: ratios => s; apply: slots_ratio.
  + by move=> i Gi; rewrite /excess Gi addrC subrK (same_counts e).
  by move=> i Gi; rewrite /excess (negbTE Gi).
pose N := law [set l in chosen (x' h' v) | 0 < x' h' v l]%N (fun m => h' (slot (chosen h') (chosen (x' h' v)) m)) (floor h' (chosen h')).
pose G := [set l in chosen h' | 0 < h' l]%N :&: chosen (x' h' v).
have under i : codes_within G i -> N i <= unknown_laplace h' i.
  by rewrite /codes_within /= /coded; case: pickle_inv => // s; apply: slots_below.
pose M := unknown_laplace (x' h' v).
have out n : \sum_(i < n | ~~ codes_within G i) M i <= missed.
  apply: le_trans (fewer _ _ (specials _ vm)); apply: outside => m mT mG.
  by case: (low vm mT mG).
have [b0 bm] := @excess_mass R M M (codes_within G) _ (fun i _ => lexx _) out.
exists M, N, (excess M M (codes_within G)), (codes_within G); split=> //.
+ move=> i; suff [h1 h2] : N i <= ratio * M i /\ M i <= ratio * N i by split.
  by apply: ratios => s; apply: slots_ratio.
+ by move=> i Gi; rewrite (same_counts e) ler_addl; split; [apply: b0|apply: under].
by move=> i Gi; rewrite (same_counts e) /excess (negbTE Gi).
Qed.

Let ratio_ge0 : 0 <= ratio. Proof. by rewrite invr_ge0 exprn_ge0 // ltW. Qed.

(* (epsilon, delta), for every set of answers: sums of the answers with a number below n, for every n. *)
Theorem slot_laplace_release h h' (E : pred nat) n : neighbours h h' ->
  \sum_(i < n | E i) unknown_laplace h i <= ratio * (\sum_(i < n | E i) unknown_laplace h' i) + missed.
Proof.
move=> hh'; have [P1 [Q1 [b [G [c1 b0 bm HG HN]]]]] := slot_laplace_cost hh'.
apply: (@le_trans _ _ (ratio * (\sum_(i < n | E i) unknown_laplace h' i) + \sum_(i < n) b i)); last first.
  by apply: ler_add; [apply: lexx|apply: bm].
rewrite mulr_sumr big_mkcond [X in _ <= X + _]big_mkcond -big_split.
apply: ler_sum => i _ /=; case: (E i); last by rewrite add0r.
case: (boolP (G i)) => Gi; last first.
  apply: (le_trans (HN i Gi)); rewrite ler_addr; apply: mulr_ge0; first exact: ratio_ge0.
  exact: (mass_ge0 (unknown_laplace h')).
have [hP hQ] := HG i Gi; apply: (le_trans hP); rewrite ler_add2r.
by have [h1 _] := c1 i; apply: (le_trans h1); apply: ler_wpmul2l; [apply: ratio_ge0|apply: hQ].
Qed.

Lemma ratio_gt1 : (0 < tau)%N -> (0 < Delta)%N -> 1 < ratio.
Proof.
move=> t0 D0; rewrite invf_gt1 ?exprn_gt0 // exprn_ilt1 ?ltW //.
by rewrite -lt0n muln_gt0 t0 /copies leq_min D0.
Qed.
Lemma missed_ge0 : 0 <= missed.
Proof.
rewrite mulr_ge0 ?ler0n //.
by apply: le_trans (tail_from_tail a01 c 0); apply: tail_from_ge0.
Qed.
End Mechanism.

(* One label of one user, added to a count: exp(tau/scale) and the tail of a difference. *)
Theorem slot_laplace_label (R : archiFieldType) (a : R) (a01 : 0 < a < 1) (L : finType) (rank : L -> nat) d tau c
  (rank_inj : injective rank) h h' (E : pred nat) n : (0 < d)%N -> neighbours tau 1 h h' ->
  \sum_(i < n | E i) unknown_laplace a01 rank d tau c h i <=
  a ^- tau * (\sum_(i < n | E i) unknown_laplace a01 rank d tau c h' i) + tail a c.
Proof.
move=> d0 hh'; have := slot_laplace_release a01 d c rank_inj E n hh'.
by rewrite /ratio /missed /copies (minn_idPl (isT : (1 <= d.+1)%N)) (minn_idPl d0) mul1n mulr1n mul1r.
Qed.

(* A count with discrete Laplace noise: a release of no labels, which shows the noisy floor alone. *)
Section Count.
Variables (R : archiFieldType) (a : R).
Hypothesis a01 : 0 < a < 1.
Let a0 : 0 < a. Proof. by case/andP: a01. Qed.
Let point (x : nat) (s : answer [finType of void]) : R := release a 0 set0 (fun=> 0%N) x s.
Definition noisy_count (x : nat) : claw R := release_law a01 0 (set0 : {set [finType of void]}) (fun=> 0%N) x.

Theorem slot_noisy_count tau x x' : (x <= x' + tau)%N -> (x' <= x + tau)%N ->
  cDP (a ^- tau) (noisy_count x) (noisy_count x').
Proof.
have one y y' s : (y <= y' + tau)%N -> (y' <= y + tau)%N -> a ^+ tau * point y s <= point y' s.
  move=> h1 h2; rewrite mulrA; apply: ler_wpmul2r; first by apply: prodr_ge0 => l; case: l.
  by apply: laplace_ratio => //; lia.
move=> h1 h2 i; rewrite /noisy_count /= /coded; case: pickle_inv => [s|]; last by rewrite !mulr0.
by rewrite !ler_pdivl_mull ?exprn_gt0 //; split; apply: one.
Qed.
End Count.

(* Two phases: labels found by unknown_laplace from counts that are capped by coins of the users' own, and
   any analyst after that, whose costs were fixed before; for instance counts of what was found. *)
Section TwoPhases.
Variables (R : archiFieldType) (a : R).
Hypothesis a01 : 0 < a < 1.
Variables (L : finType) (rank : L -> nat) (d tau c Delta : nat).
Hypothesis rank_inj : injective rank.
Hypothesis tau0 : (0 < tau)%N.
Hypothesis Delta0 : (0 < Delta)%N.
Variables (D : Type) (nb : D -> D -> Prop) (w : claw R) (capped : nat -> D -> L -> nat).
Hypothesis capped_nb : forall j s s', nb s s' -> neighbours tau Delta (capped j s) (capped j s').

Definition found : cost R * R := ((false, ratio a d tau Delta), missed a d c Delta).
Lemma found_cost j : chas_cost (cgood_set (@ccls R)) nb found (fun s => unknown_laplace a01 rank d tau c (capped j s)).
Proof. by move=> s s' ss'; apply: slot_laplace_cost => //; apply: capped_nb. Qed.

Variables (E : seq (cost R)) (m : R).
Hypothesis E_ok : okb E.
Hypothesis m0 : 0 <= m.
Local Notation start := (found.1 :: E, found.2 + m).
Local Notation fam := (@canalyst R (cost R * R) (cgood_set (@ccls R)) D nb _ (may_fail (@left_over R)) (next_fail (@without R))).
Lemma find_first : may_fail (@left_over R) start found.
Proof. by split; [rewrite /left_over inE eqxx|rewrite /= ler_addl]. Qed.

Variable after : nat -> nat -> fam (next_fail (@without R) start found).
Definition two_phases : fam start := CToss w (fun j => CAsk find_first (found_cost j) (after j)).

Theorem slot_laplace_two_phases s s' (S : seq nat -> bool) n u : nb s s' -> 0 <= u ->
  PrN n two_phases s S <= u * PrN n two_phases s' S
    + (Num.max 0 (1 - u / (ratio a d tau Delta * product E)) + (missed a d c Delta + m)).
Proof.
move=> ss' u0; have := basic_profiles R; move=> prof.
have okE : okb (found.1 :: E) by rewrite /okb /= ratio_gt1.
have f0 : 0 <= found.2 + m by rewrite addr_ge0 ?missed_ge0.
have reg (F : seq (cost R)) : okb F -> regular (persp (hb F)).
  case: prof => _ _ ch dh h0 _ _ okF; apply: persp_regular; [exact: (ch F okF)|exact: (dh F okF)|by move=> v; apply: (h0 F v okF)|].
  by rewrite /hb mul0r subr0 le_maxl ler01 lexx.
have zero (F : seq (cost R)) : okb F -> persp (hb F) 0 0 <= 0 by rewrite /persp eqxx.
have := countable_failures (bounds_countable (profiles_bounds prof)) reg zero two_phases S n okE f0 ss' u0.
by rewrite /persp oner_eq0 divr1 mul1r /hb /product big_cons.
Qed.

(* As one writes it: P(S) <= exp(sum of epsilons) Q(S) + delta. *)
Theorem slot_laplace_two_phases_delta s s' (S : seq nat -> bool) n : nb s s' ->
  PrN n two_phases s S <= ratio a d tau Delta * product E * PrN n two_phases s' S + (missed a d c Delta + m).
Proof.
move=> ss'; have p1 : 1 < ratio a d tau Delta by apply: ratio_gt1.
have p2 : 1 <= product E by apply: product_ge1.
have p0 : 0 < ratio a d tau Delta * product E.
  by rewrite mulr_gt0 ?(lt_trans ltr01 p1) ?(lt_le_trans ltr01 p2).
have := slot_laplace_two_phases S n ss' (ltW p0).
by rewrite divff ?gt_eqF // subrr max_l // add0r.
Qed.
End TwoPhases.
